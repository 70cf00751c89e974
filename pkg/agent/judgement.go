package agent

// Judgement is what the result of a call says about whether the agent that was called works.
// Circuit breakers use it.
type Judgement int

// The judgements.
const (
	// JudgementNone means that the result says nothing about the agent: the call was canceled or
	// was not made.
	JudgementNone Judgement = iota
	// JudgementAnswered means that the agent answered, even if its answer is a refusal, a question
	// or a failure of the work that it was given.
	JudgementAnswered
	// JudgementFailed means that the agent does not work for any caller: it cannot be reached, does
	// not answer, or says that it is overloaded or down.
	JudgementFailed
)

// JudgementOf returns the judgement for the error of a call. A nil error is an answer. So that the
// input of one caller does not stop the calls of others, only an error that says that the agent is
// down counts as failed: the classes UNAVAILABLE and DEADLINE_EXCEEDED, an HTTP 429 response, and
// INSUFFICIENT_RESOURCES, unless its details name a limit, such as that of the size, and the error
// names no time after which to try again.
// The error of a task that has ended, which is Answered, counts as an answer like every other
// error; cancellations count as none.
func JudgementOf(err error) Judgement {
	e := AsError(err)
	switch {
	case e == nil || e.Answered:
		return JudgementAnswered
	case e.Reason == ReasonCanceled || e.Reason == ReasonShuttingDown || e.Reason == ReasonBreakerOpen:
		return JudgementNone
	case e.Code == CodeUnavailable || e.Code == CodeDeadlineExceeded:
		return JudgementFailed
	case e.Code == CodeResourceExhausted && (e.Reason == ReasonUnavailable || e.Reason == ReasonInsufficientResources && (e.RetryAfter > 0 || len(e.Details) == 0)):
		return JudgementFailed
	}
	return JudgementAnswered
}
