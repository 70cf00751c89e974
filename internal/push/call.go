package push

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/pkg/a2a"
)

const (
	// mediaType is the media type of the body, a StreamResponse.
	mediaType = "application/a2a+json"
	// maxAnswer is the maximum number of bytes that are read of a response body, so that
	// the connection can be reused. The content is ignored.
	maxAnswer = 64 << 10
)

// HeaderID is the header with the ID of a notification. The ID is the same in each attempt.
const HeaderID = "A2A-Notification-Id"

// result is the result of a call.
type result struct {
	err        string // the reason for the owner of the task; "" on success
	cause      error  // details for the log
	retryAfter time.Duration
}

// try makes one call. A panic counts as a failure.
func (s *session) try(ctx context.Context, n *feed.Notice) (r result) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("panic while calling a webhook", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			r = result{err: "the notification could not be sent"}
		}
	}()
	if s.Allowed != nil && !s.Allowed(s.claim.Task.Owner) {
		return result{err: "the principal that registered the webhook no longer has an API key"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Policy.Timeout)
	defer cancel()
	req, err := s.request(ctx, n)
	if err != nil {
		return result{err: "the notification could not be sent", cause: err}
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return result{err: reason(err), cause: egress.WithoutURL(err)}
	}
	defer resp.Body.Close() //nolint:errcheck // the response was read already
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return result{}
	case code >= 300 && code < 400:
		return result{err: "the webhook answered " + status(code) + "; redirects are not followed"}
	default:
		return result{err: "the webhook answered " + status(code), retryAfter: retryAfter(resp.Header, time.Now())}
	}
}

func status(code int) string {
	if text := http.StatusText(code); text != "" {
		return strconv.Itoa(code) + " " + text
	}
	return strconv.Itoa(code)
}

// body returns the body of a notification and its media type. The body of the current
// protocol is the one that streams send, and is encoded once for all receivers. A
// configuration of an older version gets the task in that version's form.
func (s *session) body(ctx context.Context, n *feed.Notice) (body []byte, media string, err error) {
	if s.claim.Version != "" && s.Old != nil {
		return s.Old(ctx, s.claim.Push)
	}
	body, err = n.Encoded(feed.FormJSON, s.Encode)
	return body, mediaType, err
}

// request returns the HTTP request of a notification.
func (s *session) request(ctx context.Context, n *feed.Notice) (*http.Request, error) {
	body, media, err := s.body(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("encoding a notification: %w", err)
	}
	conf := s.claim.Config
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, conf.GetUrl(), bytes.NewReader(body))
	if err != nil {
		return nil, egress.WithoutURL(err)
	}
	h := req.Header
	h.Set("Content-Type", media)
	h.Set("User-Agent", "team-server/"+s.Version)
	h.Set("A2A-Version", cmp.Or(s.claim.Version, a2a.ProtocolVersion))
	h.Set("Accept-Encoding", "identity")
	h.Set(HeaderID, n.ID)
	if token := conf.GetToken(); token != "" { // clients read one of the two names
		h.Set("X-A2A-Notification-Token", token)
		h.Set("A2A-Notification-Token", token)
	}
	if a := conf.GetAuthentication(); a.GetCredentials() != "" {
		h.Set("Authorization", a.GetScheme()+" "+a.GetCredentials())
	}
	return req, nil
}

// reason returns why a call failed, without details that only this server should know.
func reason(err error) string {
	var ne net.Error
	var op *net.OpError
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		return "the host name of the webhook was not found"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return "the webhook did not answer in time"
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &verify):
		return "the certificate of the webhook is not valid"
	case errors.As(err, &op) && op.Op == "dial":
		return "the webhook could not be reached"
	}
	return "the connection to the webhook was lost"
}
