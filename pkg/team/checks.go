package team

import (
	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

// checks is what the middlewares of a scope have said of its own messages.
type checks struct {
	arrivals []*arrival   // what input middlewares have to look at
	outputs  int          // output middlewares that have looked
	barred   *agent.Error // why the scope goes no further
	warnings []string
}

// arrival is a message that came into a scope.
type arrival struct {
	ref    int64          // sequence of the event that brought it; 0 is the input
	m      *a2av1.Message // as it is now
	looked int
	put    func(m *a2av1.Message, seq int64) // where the scope reads it
}

// arrive has input middlewares look at a message before the scope goes on.
func (f *fold) arrive(ref int64, m *a2av1.Message, put func(m *a2av1.Message, seq int64)) {
	if len(f.Team.Guards.Input) > 0 {
		f.arrivals = append(f.arrivals, &arrival{ref: ref, m: m, put: put})
	}
}

// arriveInput is arrive for what the scope was given.
func (f *fold) arriveInput() {
	f.arrive(0, f.Input, func(m *a2av1.Message, _ int64) {
		f.Input = m
		f.Messages = []*a2av1.Message{m}
	})
}

// arriveFollowUp is arrive for the last of the follow-ups.
func (f *fold) arriveFollowUp(seq int64) {
	i := len(f.Received) - 1
	f.arrive(seq, f.Received[i], func(m *a2av1.Message, _ int64) { f.Received[i] = m })
}

// arriveAnswer is arrive for the answer to the scheduler's own question.
func (f *fold) arriveAnswer(seq int64, m *a2av1.Message) {
	f.arrive(seq, m, func(m *a2av1.Message, _ int64) { f.Messages = []*a2av1.Message{m} })
}

// arriveHuman is arrive for what people answered to a human step.
func (f *fold) arriveHuman(st *StepState) {
	f.arrive(st.seq, st.Message, func(m *a2av1.Message, seq int64) { st.Message, st.seq = m, seq })
}

// checked folds what a middleware of the scope did.
func (f *fold) checked(seq int64, c *teamv1.Checked) {
	f.texts.Add(seq, c.GetMessage())
	switch c.GetStage() {
	case teamv1.Checked_STAGE_INPUT:
		f.looked(seq, c)
	case teamv1.Checked_STAGE_OUTPUT:
		f.outputs++
		if c.GetMessage() != nil {
			f.final = c.GetMessage()
		}
	case teamv1.Checked_STAGE_DELEGATION, teamv1.Checked_STAGE_RESULT, teamv1.Checked_STAGE_UNSPECIFIED:
		return // of the team above
	}
	switch {
	case c.GetBlocked():
		f.barred = agent.FromProto(c.GetError())
	case c.GetError() != nil:
		f.warnings = append(f.warnings, c.GetError().GetMessage())
	}
}

// looked folds a look at a message that came in.
func (f *fold) looked(seq int64, c *teamv1.Checked) {
	for _, a := range f.arrivals {
		if a.ref != c.GetRef() {
			continue
		}
		a.looked++
		if m := c.GetMessage(); m != nil {
			a.m = m
			a.put(m, seq)
		}
	}
}
