package agent

// Verdict is what the end of a call says of the agent that was called.
type Verdict int

// The verdicts.
const (
	// VerdictNone: nothing. The call was canceled, or ended by a limit above it.
	VerdictNone Verdict = iota
	// VerdictAnswered: it works, also where the answer was no, or a question.
	VerdictAnswered
	// VerdictFailed: it does not work: it cannot be reached, breaks, or takes too long.
	VerdictFailed
)

// VerdictOf reads the error of a call; nil is an answer. Only failures of the
// callee count: not what it refuses, what a guardrail stops, a limit of the
// caller's, a cancel, or a question.
func VerdictOf(err error) Verdict {
	e := AsError(err)
	if e == nil {
		return VerdictAnswered
	}
	switch e.Reason {
	case ReasonCanceled, ReasonShuttingDown, ReasonBreakerOpen:
		return VerdictNone
	case ReasonTimeout, ReasonAgentPanic, ReasonInternal, ReasonDelegationFailed:
		return VerdictFailed
	case ReasonUnavailable:
		if e.Code == CodeFailedPrecondition || e.Code == CodeResourceExhausted { // it answered: no
			return VerdictAnswered
		}
		return VerdictFailed
	}
	if e.Code == CodeUnavailable || e.Code == CodeDeadlineExceeded {
		return VerdictFailed
	}
	return VerdictAnswered
}
