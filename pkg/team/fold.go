package team

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// fold keeps the State of one scope. Only the goroutine of the scope's loop
// touches it; every event is applied in the order of the journal, live and on
// replay alike.
type fold struct {
	State
	loop       *Loop
	prefix     string            // scope and ".", or "" for the root
	dispatched int               // Rounds of earlier rounds of revision
	visited    map[visit]bool    // handed over so far
	batches    []batch           // decisions whose steps have not all ended
	started    time.Time         // time of the scope's first event
	clock      journal.Clock     // of the scope
	asked      journal.Questions // its own
	questions  int64             // own ones so far
	asks       *a2av1.Message    // decided to be asked, and not yet
	final      *a2av1.Message    // the answer that was decided on
	unmet      *agent.Error      // why the answer is not what was asked for
	kept       bool              // readers are shown the answer all the same
	handover   *teamv1.Transfer  // or who takes over
	offered    bool              // what tool sets offer is on record
	texts      journal.Texts     // what the scope has seen, and the record that the call began with
	failed     *agent.Error      // the failure that ends the run
	checks
}

// batch is a decision and its steps.
type batch struct {
	decided *teamv1.Decided
	steps   []*StepState
}

// visit is what cycle detection compares: the member and the text handed
// over, in a workflow with the step.
type visit struct{ step, member, text string }

func newFold(l *Loop, req *teamv1.ProcessRequest, root string) *fold {
	f := &fold{loop: l, texts: journal.TextsOf(root, req.GetRecorded())}
	f.Team = l.cfg
	f.Root = root
	f.Transfers = req.GetTransfers()
	f.Scope = req.GetScope()
	f.Path = agent.Path(req)
	f.Input = req.GetMessage()
	f.History = req.GetHistory()
	f.Messages = []*a2av1.Message{f.Input}
	f.Brief, f.Context = req.GetBrief(), maps.Clone(req.GetBrief().GetContext().GetFields())
	if f.Scope != "" {
		f.prefix = f.Scope + "."
	}
	f.arriveInput()
	return f
}

// apply folds one event of the scope or below it.
func (f *fold) apply(ev *teamv1.Event) {
	if t := ev.GetTime(); t != nil {
		f.clock.ApplyToTeam(f.Scope, ev, f.Now)
		f.Now = t.AsTime()
		if ev.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_RESUME {
			f.resumed(ev)
			return
		}
		if f.started.IsZero() {
			f.started = f.Now
		}
	}
	if ev.GetScope() == f.Scope {
		f.applyOwn(ev)
		return
	}
	rest, ok := strings.CutPrefix(ev.GetScope(), f.prefix)
	if !ok {
		return
	}
	id, deeper, _ := strings.Cut(rest, ".")
	if st := f.step(id); st != nil {
		f.applyStep(st, ev, deeper == "")
	}
}

// resumed folds the end of a pause for what has begun in the scope.
func (f *fold) resumed(ev *teamv1.Event) {
	for st := range f.pending() {
		if st.past.Attempts > 0 {
			st.stood(st.clock.Resumed(ev), f.Now)
		}
	}
}

// step returns the step of the round with that id: its place among all steps, from 1.
func (f *fold) step(id string) *StepState {
	n, last := 0, len(f.Earlier)+len(f.Steps)
	for _, c := range []byte(id) {
		if c < '0' || c > '9' || n > last {
			return nil
		}
		n = n*10 + int(c-'0')
	}
	n -= len(f.Earlier)
	if n < 1 || n > len(f.Steps) {
		return nil
	}
	return f.Steps[n-1]
}

// applyOwn folds an event of the scope itself.
func (f *fold) applyOwn(ev *teamv1.Event) {
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Decided:
		f.texts.Add(ev.GetSeq(), agent.MessageOf(f.Root, ev))
		f.decide(k.Decided)
	case *teamv1.Event_Observed:
		f.observe(k.Observed)
	case *teamv1.Event_Noted:
		f.noted(k.Noted)
	case *teamv1.Event_Received:
		f.texts.Add(ev.GetSeq(), k.Received.GetMessage())
		if m := k.Received.GetMessage(); m != nil && !k.Received.GetTooLate() {
			f.Received = append(f.Received, m)
			f.arriveFollowUp(ev.GetSeq())
		}
	case *teamv1.Event_Asked:
		f.asked.Apply(ev)
		f.asks = nil
		f.questions++
	case *teamv1.Event_Answered:
		if _, closed := f.asked.Apply(ev); closed != nil {
			f.Messages = []*a2av1.Message{k.Answered.GetMessage()}
			f.arriveAnswer(ev.GetSeq(), k.Answered.GetMessage())
		}
	case *teamv1.Event_Checked:
		f.checked(ev.GetSeq(), k.Checked)
	case *teamv1.Event_Artifact:
		f.kept = true
	default: // notes, texts and what is for readers only
	}
}

// isAsking reports whether the scope waits for the answer to a question of its own.
func (f *fold) isAsking() bool { return len(f.asked.Open()) > 0 }

// observe keeps what is known of the members.
func (f *fold) observe(o *teamv1.Observed) {
	if len(f.Roster) == 0 {
		f.Roster = o.GetMembers() // all of them, each once; shared with other runs
		return
	}
	f.Roster = slices.Clone(f.Roster)
	for _, m := range o.GetMembers() {
		i := slices.IndexFunc(f.Roster, func(r *teamv1.Observed_Member) bool { return r.GetId() == m.GetId() })
		if i >= 0 {
			f.Roster[i] = m
		} else {
			f.Roster = append(f.Roster, m)
		}
	}
}

// decide adds the steps of a decision and settles which of them may not start.
func (f *fold) decide(d *teamv1.Decided) {
	if d.GetRound() > 0 {
		f.revise(d)
		return
	}
	f.drop(d.GetCancel())
	first := len(f.Steps)
	dispatches := false
	for _, step := range d.GetSteps() {
		st := &StepState{
			Step: step, index: len(f.Earlier) + len(f.Steps), Round: f.dispatched + f.Rounds, Heard: len(f.Received), EndedBefore: f.Ended, Scope: f.prefix + step.GetId(),
			Given: f.texts.Resolve(step.GetInput(), f.Input), earlier: step.GetInput().GetEarlier(),
		}
		if r := step.GetRefusal(); r != nil {
			st.Refusal = agent.FromProto(r.GetError())
		} else if st.ByMember() {
			dispatches = true
			st.Refusal = f.admit(st)
		} else if step.GetKind() == teamv1.Step_KIND_JUDGE {
			f.judging(st, d)
		}
		f.Steps = append(f.Steps, st)
	}
	if dispatches {
		f.Rounds++
	}
	if d.GetReply() != nil {
		f.final = f.texts.Resolve(d.GetReply(), f.Input)
		f.concluded(d)
	}
	f.asks, f.handover = d.GetAsk(), d.GetTransfer()
	if len(d.GetSteps()) > 0 {
		f.batches = append(f.batches, batch{d, f.Steps[first:len(f.Steps):len(f.Steps)]})
	}
}

// admit refuses a step beyond the step limit, and one that hands a
// member what it has been handed before in this run.
func (f *fold) admit(st *StepState) *agent.Error {
	if f.dispatched+f.Rounds >= f.loop.limits.maxSteps {
		return agent.Errorf(agent.CodeInternal, agent.ReasonMaxIterations,
			"team %q ran %d steps, the most it may (limits.max_steps); a cycle between its members is possible; end it, or raise the limit", f.Team.ID, f.loop.limits.maxSteps)
	}
	if f.loop.traits.DetectsCycles {
		return nil
	}
	v := visit{member: st.Step.GetMember(), text: prompt.HandedOver(st.Given)}
	if st.Step.GetKind() == teamv1.Step_KIND_STEP {
		v.step = st.Step.GetName()
	}
	if f.visited[v] {
		return agent.Errorf(agent.CodeInternal, agent.ReasonCycleDetected,
			"team %q: member %q is given the same message a second time in this run; let it be given something else, or the run end", f.Team.ID, v.member).With("member", v.member)
	}
	if f.visited == nil {
		f.visited = map[visit]bool{}
	}
	f.visited[v] = true
	return nil
}

// applyStep folds an event of a step or below it; own says that it is the step's.
func (f *fold) applyStep(st *StepState, ev *teamv1.Event, own bool) {
	st.past.Asked.Apply(ev)
	waited, held := st.clock.ApplyToStep(st.Scope, ev, &st.past.Asked)
	st.extend(waited)
	st.stood(held, f.Now)
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		if own {
			st.past.Attempts, st.past.Reserved = k.Started.GetAttempt(), k.Started.GetReserved()
			st.past.Open, st.past.Ruling = true, nil
			if st.Began.IsZero() {
				st.Began = f.Now
			}
			if d := k.Started.GetDeadline(); d != nil && st.past.Deadline.IsZero() {
				st.past.Deadline = d.AsTime()
			}
			return
		}
	case *teamv1.Event_Retried:
		if own {
			st.retried(k.Retried)
			return
		}
	case *teamv1.Event_Ended:
		if own {
			f.end(st, ev)
			return
		}
		f.texts.Add(ev.GetSeq(), agent.MessageOf(f.Root, ev))
	case *teamv1.Event_Decided:
		f.texts.Add(ev.GetSeq(), agent.MessageOf(f.Root, ev)) // what it hands in to its judge may be its answer
	case *teamv1.Event_Waiting:
		if own {
			return
		}
	case *teamv1.Event_Answered:
		f.texts.Add(ev.GetSeq(), k.Answered.GetMessage())
		if own {
			f.rule(st, k.Answered.GetMessage(), ev.GetSeq())
		}
	case *teamv1.Event_Asked:
		if own {
			st.past.Questions++
		}
	case *teamv1.Event_Checked:
		f.texts.Add(ev.GetSeq(), k.Checked.GetMessage())
		if own && st.past.Checks.Apply(ev.GetSeq(), k.Checked) {
			return
		}
	case *teamv1.Event_Expired:
		st.expired = st.expired || own && k.Expired.GetLimit() == agent.LimitQuestion
	case *teamv1.Event_Delta, *teamv1.Event_Progress, *teamv1.Event_Claimed:
		return // for readers only: never needed to resume
	default:
	}
	st.past.Recorded = append(st.past.Recorded, ev)
}

// retried closes an attempt. A known failure begins a new effect.
func (st *StepState) retried(r *teamv1.Retried) {
	st.past.Open, st.past.Unknown = false, !r.GetFresh()
	st.past.Spent = agent.AddSpent(st.past.Spent, r.GetSpent())
	if r.GetFresh() {
		st.past.Failures++
		st.past.Recorded = nil
	}
	if t := r.GetNotBefore(); t != nil {
		st.past.NotBefore = t.AsTime()
	}
}

// extend moves the deadline of a step by the time for which its clock has stood.
func (st *StepState) extend(by time.Duration) {
	if by > 0 && !st.past.Deadline.IsZero() {
		st.past.Deadline = st.past.Deadline.Add(by)
	}
}

// stood extends the time of a step that a pause has held until now, and lets what has begun
// below it know, as if that had been told to it alone.
func (st *StepState) stood(held time.Duration, now time.Time) {
	if held <= 0 {
		return
	}
	st.extend(held)
	if n := len(st.past.Recorded); n > 0 {
		st.past.Recorded = append(st.past.Recorded, &teamv1.Event{
			Seq: st.past.Recorded[n-1].GetSeq(), Time: timestamppb.New(now), Scope: st.Scope,
			Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_RESUME, Waited: durationpb.New(held)}},
		})
	}
}

// end closes a step.
func (f *fold) end(st *StepState, ev *teamv1.Event) {
	e := ev.GetEnded()
	st.Done, st.past.Open = true, false
	st.Outcome, st.Turn, st.Tool, st.Transfer, st.Spent = e.GetOutcome(), e.GetTurn(), e.GetTool(), e.GetTransfer(), e.GetSpent()
	st.Verdict = e.GetVerdict()
	st.EndIndex, st.EndSeq = f.Ended, ev.GetSeq()
	f.Ended++
	if st.EndSeq == 0 {
		st.EndSeq = -int64(f.Ended) // nobody keeps a record
	}
	st.Err = agent.FromProto(e.GetError())
	if ref := e.GetReplyRef(); ref != 0 {
		st.Message, st.seq = f.texts.At(ref), ref
	} else if m := agent.MessageOf(f.Root, ev); m != nil {
		st.Message, st.seq = m, ev.GetSeq()
	}
	f.texts.Add(st.seq, st.Message)
	st.past.Recorded = nil
	if err := st.Failure(); err != nil && f.failed == nil && f.fatal(st) {
		f.failed = err
	}
	f.exhausted(st)
	for f.done < len(f.Steps) && f.Steps[f.done].Done {
		f.done++
	}
	f.settle()
}

// fatal reports whether the failure of a step ends the run.
func (f *fold) fatal(st *StepState) bool {
	if f.Team.Scheduler.Handles(st) {
		return false
	}
	return !f.Team.ReportErrors || st.BeyondLimit()
}

// settle applies what decisions proposed once their steps have ended: the
// context updates, the last response, the current messages.
func (f *fold) settle() {
	f.batches = slices.DeleteFunc(f.batches, func(b batch) bool {
		for _, st := range b.steps {
			if !st.Done {
				return false
			}
		}
		for k, v := range b.decided.GetUpdates() {
			if f.Context == nil {
				f.Context = map[string]*structpb.Value{}
			}
			f.Context[k] = v
		}
		f.respond(b.steps)
		return true
	})
}

// respond makes the results of a batch of members the last response.
func (f *fold) respond(batch []*StepState) {
	if len(batch) == 1 {
		f.respondAlone(batch[0])
		return
	}
	var members []string
	var answered []*StepState
	var last *StepState
	for _, st := range batch {
		if !st.ByMember() {
			continue
		}
		last = st
		members = append(members, st.Step.GetMember())
		if st.Message != nil {
			answered = append(answered, st)
		}
	}
	if last == nil {
		return
	}
	f.Last = &Result{Member: strings.Join(members, ", "), Outcome: last.Outcome}
	switch len(answered) {
	case 0:
		return
	case 1:
		f.Last.Message = answered[0].Message
	default:
		f.Last.Message, f.Last.Joins = Joined(answered), JoinedIDs(answered)
	}
	f.Messages = []*a2av1.Message{f.Last.Message}
}

// respondAlone is respond for a batch of one step.
func (f *fold) respondAlone(st *StepState) {
	if !st.ByMember() {
		return
	}
	last := &struct { // one allocation: each step makes one
		result  Result
		message [1]*a2av1.Message
	}{Result{Member: st.Step.GetMember(), Outcome: st.Outcome, Message: st.Message}, [1]*a2av1.Message{st.Message}}
	f.Last = &last.result
	if st.Message != nil {
		f.Messages = last.message[:]
	}
}

// rule folds an answer to a step's own question.
func (f *fold) rule(st *StepState, m *a2av1.Message, seq int64) {
	switch st.Step.GetKind() {
	case teamv1.Step_KIND_TOOL:
		st.past.Ruling = m
	case teamv1.Step_KIND_HUMAN:
		st.Message, st.seq = m, seq
		f.arriveHuman(st)
	default:
	}
}

// drop marks the open steps that a decision has dropped.
func (f *fold) drop(ids []string) {
	for _, id := range ids {
		if st := f.step(id); st != nil && !st.Done {
			st.Dropped = true
		}
	}
}

// judging folds that a result was handed in to the judge.
func (f *fold) judging(st *StepState, d *teamv1.Decided) {
	if f.review == nil || f.review.heard != st.Heard {
		f.review = &review{result: st.Given, joins: d.GetJoins(), heard: st.Heard}
	}
	f.review.asked = append(f.review.asked, st)
}

// concluded folds the answer: what its readers should know of the judgement.
func (f *fold) concluded(d *teamv1.Decided) {
	f.unmet = agent.FromProto(d.GetFailure())
	if f.review == nil || f.unmet != nil {
		return
	}
	if _, scored := f.review.score(); !scored {
		f.warnings = append(f.warnings, "the result has no score: "+f.review.fault())
	}
}

// revise begins a round: for the scheduler as if nothing had been done before.
func (f *fold) revise(d *teamv1.Decided) {
	f.first = f.begin()
	f.said = append(f.said, f.Received...)
	f.Earlier = append(f.Earlier, f.Steps...)
	f.dispatched += f.Rounds
	f.revision, f.Input, f.Messages = int(d.GetRound()), d.GetInput(), []*a2av1.Message{d.GetInput()}
	f.Steps, f.done, f.Rounds, f.Last, f.Received, f.review, f.visited = nil, 0, 0, nil, nil, nil, nil
}

// exhausted ends the run where a limit that holds for all of it has refused a
// step, and nothing else comes of it. What it means for a result that nobody can
// be paid to judge is the gate's to say.
func (f *fold) exhausted(st *StepState) {
	if !agent.Binds(st.Err, f.Path) || st.Step.GetKind() == teamv1.Step_KIND_JUDGE {
		return
	}
	final := f.loop.traits.FinalTurn
	if f.failed == nil && (final == "" || final == st.Step.GetName()) {
		f.failed = st.Err
	}
}

// noted folds a note of the scope's own.
func (f *fold) noted(n *teamv1.Noted) {
	if n.GetCode() != noteTools {
		return
	}
	f.offered = true
	for _, v := range n.GetDetails().GetFields()["tools"].GetListValue().GetValues() {
		t := v.GetStructValue().GetFields()
		spec := agent.ToolSpec{
			Name: t["name"].GetStringValue(), Description: t["description"].GetStringValue(), Effect: agent.Effect(t["effect"].GetNumberValue()),
		}
		if s := t["parameters"].GetStringValue(); s != "" {
			spec.Parameters = []byte(s)
		}
		f.Tools = append(f.Tools, spec)
	}
}
