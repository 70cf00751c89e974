// Package model contains what the packages of the model providers share. Each provider is a package
// of its own that implements agent.Model.
package model

import (
	"time"

	"github.com/agentteams/team-server/pkg/agent"
)

// StatusError returns the error of a model whose endpoint responded with an HTTP status other than
// 2xx and nothing else. The outcome is known, so the error is Fresh. It may be retried after retryAfter,
// unless that is 0.
func StatusError(name string, status int, retryAfter time.Duration) *agent.Error {
	e := kindError((&report{status: status}).kind(), name, status, "")
	e.RetryAfter = retryAfter
	return e
}

// kindError returns the error for a kind of failure. words are what the endpoint says, cleaned.
func kindError(f failure, name string, status int, words string) *agent.Error {
	code := agent.CodeFailedPrecondition
	switch f.name {
	case busy.name, broke.name:
		code = agent.CodeResourceExhausted
	case failing.name, empty.name:
		code = agent.CodeUnavailable
	}
	reason := agent.ReasonUnavailable
	if f.name == tooLong.name {
		reason = agent.ReasonContextTooLong
	}
	e := agent.Errorf(code, reason, "%s", f.message(name, status, words))
	e.Retry, e.Elsewhere, e.Fresh = f.retry, f.other, true
	return e
}
