package agent

// Judgement is what the end of a call says of the agent that was called.
type Judgement int

// The judgements.
const (
	// JudgementNone: nothing. The call was canceled, or ended by a limit above it.
	JudgementNone Judgement = iota
	// JudgementAnswered: it works, also where the answer was no, or a question.
	JudgementAnswered
	// JudgementFailed: it does not work: it cannot be reached, breaks, or takes too long.
	JudgementFailed
)

// JudgementOf reads the error of a call; nil is an answer. Only failures of the
// callee count: not what it refuses, what a guardrail stops, a limit of the
// caller's, a cancel, or a question.
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
		if e.Code == CodeFailedPrecondition || e.Code == CodeResourceExhausted { // it answered: no
			return JudgementAnswered
		}
		return JudgementFailed
	}
	if e.Code == CodeUnavailable || e.Code == CodeDeadlineExceeded {
		return JudgementFailed
	}
	return JudgementAnswered
}
