// Package model holds what the model providers below it share. Each provider is
// a package of its own that implements agent.Model.
package model

import (
	"net/http"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// StatusError is the error of a model whose endpoint answered with an HTTP
// status that is no success. The outcome is known, so a repetition is Fresh.
// Busy and broken endpoints (429, 408, 5xx) may be asked again, after retryAfter
// where that is more than 0; what was refused (other 4xx) may not.
func StatusError(name string, status int, retryAfter time.Duration) *agent.Error {
	switch {
	case status == http.StatusTooManyRequests:
		return again(agent.Errorf(agent.CodeResourceExhausted, agent.ReasonUnavailable,
			"model %q takes no more calls for now (HTTP %d); try again later", name, status), retryAfter)
	case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return again(agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
			"the endpoint of model %q does not work (HTTP %d); try again later", name, status), retryAfter)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return refused("the endpoint of model %q refused the key (HTTP %d); check the model's api_key", name, status)
	case status == http.StatusNotFound:
		return refused("the endpoint of model %q does not know it (HTTP %d); check the model's name and base_url", name, status)
	}
	return refused("the endpoint of model %q refused the request (HTTP %d)", name, status)
}

func again(e *agent.Error, after time.Duration) *agent.Error {
	e.Retry, e.Fresh, e.RetryAfter = true, true, after
	return e
}

func refused(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, format, args...)
	e.Fresh = true
	return e
}
