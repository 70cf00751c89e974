// Package model contains what the packages of the model providers share. Each provider is a package
// of its own that implements agent.Model.
package model

import (
	"net/http"
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// StatusError returns the error of a model whose endpoint responded with an HTTP status other than
// 2xx. The outcome is known, so the error is Fresh. 429, 408 and 5xx may be retried, after
// retryAfter unless it is 0; other statuses must not be retried.
func StatusError(name string, status int, retryAfter time.Duration) *agent.Error {
	switch {
	case status == http.StatusTooManyRequests:
		return retryable(agent.Errorf(agent.CodeResourceExhausted, agent.ReasonUnavailable,
			"model %q limits the rate of calls (HTTP %d); try again later", name, status), retryAfter)
	case status == http.StatusRequestTimeout, status >= http.StatusInternalServerError:
		return retryable(agent.Errorf(agent.CodeUnavailable, agent.ReasonUnavailable,
			"the endpoint of model %q failed (HTTP %d); try again later", name, status), retryAfter)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return refused("the endpoint of model %q refused the key (HTTP %d); check the model's api_key", name, status)
	case status == http.StatusNotFound:
		return refused("the endpoint of model %q does not know this model (HTTP %d); check the model's name and base_url", name, status)
	}
	return refused("the endpoint of model %q refused the request (HTTP %d)", name, status)
}

// retryable returns e as an error that may be retried.
func retryable(e *agent.Error, after time.Duration) *agent.Error {
	e.Retry, e.Fresh, e.RetryAfter = true, true, after
	return e
}

// refused returns an error that must not be retried.
func refused(format string, args ...any) *agent.Error {
	e := agent.Errorf(agent.CodeFailedPrecondition, agent.ReasonUnavailable, format, args...)
	e.Fresh = true
	return e
}
