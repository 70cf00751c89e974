package openai

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	openai "github.com/sashabaranov/go-openai"

	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
)

// errBroken: the endpoint ended the answer with an error it does not explain.
var errBroken = errors.New("the endpoint reported an error within the stream")

// notStream is an answer that cannot be a stream.
type notStream struct{ mediaType string }

func (e *notStream) Error() string {
	return "the endpoint answered with " + e.mediaType + ", not with a stream"
}

// failure is the caller's view of what went wrong. What the endpoint said is the
// cause and goes to the log; a caller sees a piece of it where the request was
// refused, and never of answers about keys and quotas.
func (m *Model) failure(c *call, err error) error {
	var api *openai.APIError
	var odd *notStream
	reported := errors.As(err, &api)
	var e *agent.Error
	switch {
	case c.failed():
		e = m.status(c.res.StatusCode, c.retryAfter(time.Now()), api)
	case reported:
		e = m.status(statusOf(api), 0, api)
	case errors.Is(err, errBroken):
		e = m.status(http.StatusBadGateway, 0, nil)
	case errors.As(err, &odd):
		e = m.refuse("the endpoint of model %q answered with %s, not with a stream; check base_url", m.name, odd.mediaType)
	case errors.Is(err, errTooLong), errors.Is(err, bufio.ErrTooLong):
		e = m.refuse("model %q answered with more than a turn may have, 64 MiB in pieces of 16 MiB", m.name)
	case c.res == nil && !sent(err):
		e = m.refuse("model %q cannot be asked like this", m.name)
	case c.res == nil:
		e = m.lost("the endpoint of model %q could not be reached; try again later", m.name)
	default:
		e = m.lost("the answer of model %q broke off; try again", m.name)
	}
	return e.Because(&cause{err: err, key: m.key})
}

// status is the error for an HTTP status, with what the endpoint says about it.
func (m *Model) status(status int, after time.Duration, api *openai.APIError) *agent.Error {
	e := model.StatusError(m.name, status, after)
	if api == nil {
		return e
	}
	switch {
	case api.Code == "insufficient_quota":
		e.Retry = false
		e.Message = fmt.Sprintf("the quota of model %q is used up (HTTP %d); waiting does not help", m.name, status)
	case !e.Retry && status != http.StatusUnauthorized && status != http.StatusForbidden:
		if said := excerpt(api.Message, m.key); said != "" {
			e.Message += ": " + said
		}
	}
	return e
}

func (m *Model) refuse(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, format, args...)
	e.Fresh = true
	return e
}

// lost is a failure after which nobody knows what the endpoint did.
func (m *Model) lost(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable, format, args...)
	e.Retry = true
	return e
}

// statusOf is the HTTP status that an error within a stream would have had.
func statusOf(e *openai.APIError) int {
	if code, err := strconv.Atoi(fmt.Sprint(e.Code)); err == nil && code >= 400 && code <= 599 {
		return code
	}
	switch {
	case e.Type == "invalid_request_error":
		return http.StatusBadRequest
	case e.Type == "rate_limit_error", e.Code == "rate_limit_exceeded", e.Code == "insufficient_quota":
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// sent reports whether the failure is one of the request on its way, and not of
// making it.
func sent(err error) bool {
	var u *url.Error
	return errors.As(err, &u)
}

// cause is what went wrong, for the log: without the key, and not at length.
type cause struct {
	err error
	key string
}

func (c *cause) Error() string { return clean(c.err.Error(), c.key, 1000) }
func (c *cause) Unwrap() error { return c.err }

// excerpt is what a caller may see of an endpoint's words.
func excerpt(said, key string) string { return clean(said, key, 200) }

// secret matches what looks like a credential.
var secret = regexp.MustCompile(`(?i)\b(sk-|bearer\s+)[\w*.-]{4,}`)

// clean makes a text one line of at most n characters without credentials.
func clean(s, key string, n int) string {
	if key != "" {
		s = strings.ReplaceAll(s, key, "***")
	}
	s = secret.ReplaceAllString(s, "***")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
