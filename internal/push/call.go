package push

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/internal/feed"
	"github.com/agentteams/team-server/internal/traceparent"
	"github.com/agentteams/team-server/pkg/a2a"
)

const (
	// mediaType is the media type of the body, a StreamResponse.
	mediaType = "application/a2a+json"
	// maxAnswer is the maximum number of bytes that are read of a response body, so that
	// the connection can be reused. The content is ignored.
	maxAnswer = 64 << 10
)

// Headers of a notification.
const (
	// HeaderID is the header with the ID of a notification. The ID is the same in each attempt.
	HeaderID = "A2A-Notification-Id"
	// HeaderTime is the header with the time of the attempt, in seconds since 1970.
	HeaderTime = "A2A-Notification-Timestamp"
	// HeaderSignature is the header with the signatures of the attempt, separated by spaces.
	HeaderSignature = "A2A-Notification-Signature"
)

// Why a notification was not delivered, for the owner of the task. The texts are the same for all
// causes that would otherwise show what is in the network of this server.
const (
	whyNotSent = "could not be sent"
	whyNoKey   = "rights have ended"
	whyRefused = "refused by receiver"
	whyFailed  = "connection failed"
	whyAddress = "address not allowed"
)

// result is the result of a call.
type result struct {
	err        string // the reason for the owner of the task; "" on success
	cause      error  // details for the log
	retryAfter time.Duration
	final      bool // the next attempt would fail as well
}

// try makes one call. A panic counts as a failure.
func (s *session) try(ctx context.Context, n *feed.Notice) (r result) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("panic while calling a webhook", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			r = result{err: whyNotSent}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, s.Policy.Timeout)
	defer cancel()
	if s.Allowed != nil {
		switch may, err := s.Allowed(ctx, s.claim.Task.Owner); {
		case err != nil:
			return result{err: whyNotSent, cause: err}
		case !may:
			return result{err: whyNoKey}
		}
	}
	req, err := s.request(ctx, n)
	if err != nil {
		return result{err: whyNotSent, cause: err}
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		_, literal := netip.ParseAddr(req.URL.Hostname())
		if errors.Is(err, egress.ErrNotAllowed) && literal == nil { // of a name, its owner must not learn the addresses
			return result{err: whyAddress, cause: egress.WithoutURL(err), final: true}
		}
		return result{err: whyFailed, cause: egress.WithoutURL(err)}
	}
	defer resp.Body.Close() //nolint:errcheck // the response was read already
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return result{}
	case code >= 300 && code < 400:
		return result{err: whyRefused, cause: fmt.Errorf("the webhook answered %s; redirects are not followed", status(code))}
	default:
		return result{err: whyRefused, cause: fmt.Errorf("the webhook answered %s", status(code)), retryAfter: retryAfter(resp.Header, time.Now())}
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
	traceparent.Set(ctx, h)
	h.Set(HeaderID, n.ID)
	if err := s.sign(h, n.ID, conf.GetUrl(), body); err != nil {
		return nil, err
	}
	if token := conf.GetToken(); token != "" { // clients read one of the two names
		h.Set("X-A2A-Notification-Token", token)
		h.Set("A2A-Notification-Token", token)
	}
	if a := conf.GetAuthentication(); a.GetCredentials() != "" {
		h.Set("Authorization", a.GetScheme()+" "+a.GetCredentials())
	}
	return req, nil
}

// sign adds the time and, if notifications are signed, the signatures of an attempt.
func (s *session) sign(h http.Header, id, url string, body []byte) error {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	h.Set(HeaderTime, at)
	if s.Sign == nil {
		return nil
	}
	signatures, err := s.Sign(slices.Concat([]byte(id+"."+at+"."), body), url)
	if err != nil {
		return fmt.Errorf("signing a notification: %w", err)
	}
	if len(signatures) > 0 {
		h.Set(HeaderSignature, strings.Join(signatures, " "))
	}
	return nil
}
