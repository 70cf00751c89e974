package agent

// Judgement is what the result of a call says about whether the agent that was called works.
// Circuit breakers use it.
type Judgement int

// The judgements.
const (
	// JudgementNone means that the result says nothing about the agent: the call was canceled or
	// was not made.
	JudgementNone Judgement = iota
	// JudgementAnswered means that the agent works, even if it answered with a refusal or a
	// question.
	JudgementAnswered
	// JudgementFailed means that the agent does not work: it cannot be reached, fails or takes
	// too long.
	JudgementFailed
)

// JudgementOf returns the judgement for the error of a call. A nil error is an answer. Only
// failures of the agent itself count as failed; refusals, blocked messages, limits of the caller
// and questions count as answered, and cancellations as none.
func JudgementOf(err error) Judgement {
	e := AsError(err)
	if e == nil {
		return JudgementAnswered
	}
	switch e.Reason {
	case ReasonCanceled, ReasonShuttingDown, ReasonBreakerOpen:
		return JudgementNone
	case ReasonTimeout, ReasonAgentPanic, ReasonInternal, ReasonDelegationFailed:
		return JudgementFailed
	case ReasonUnavailable:
		if e.Code == CodeFailedPrecondition || e.Code == CodeResourceExhausted { // the agent answered with a refusal
			return JudgementAnswered
		}
		return JudgementFailed
	}
	if e.Code == CodeUnavailable || e.Code == CodeDeadlineExceeded {
		return JudgementFailed
	}
	return JudgementAnswered
}
