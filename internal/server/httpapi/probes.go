package httpapi

import (
	"errors"
	"net/http"

	"github.com/agentteams/team-server/internal/runs"
)

// serveHealthz reports that the process is alive.
func (s *pages) serveHealthz(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	plain(w, http.StatusOK, nil)
}

// serveReadyz reports whether the server should receive calls.
func (s *pages) serveReadyz(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	if err := s.config.Ready(); err != nil {
		plain(w, http.StatusServiceUnavailable, unready(err))
		return
	}
	plain(w, http.StatusOK, nil)
}

// unready returns the public error for a server that is not ready. The only reason that it
// discloses is that the store rejects writes.
func unready(err error) error {
	if errors.Is(err, runs.ErrStorage) {
		return errors.New("not ready: " + runs.ErrStorage.Error())
	}
	return errors.New("not ready")
}

func plain(w http.ResponseWriter, httpStatus int, err error) {
	text := "ok\n"
	if err != nil {
		text = err.Error() + "\n"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(httpStatus)
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}
