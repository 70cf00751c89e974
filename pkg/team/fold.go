package team

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/journal"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/internal/step"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// fold computes the State of one scope from its events. Only the goroutine of the scope's loop uses
// it. Events are applied in journal order, both live and when a recorded run is resumed.
type fold struct {
	State
	loop             *Loop
	prefix           string            // the scope and "."; "" for the root
	dispatched       int               // Rounds of the earlier rounds of revision
	visited          map[visit]bool    // what members were given in this round, for cycle detection
	batches          []batch           // decisions with steps that have not ended
	started          time.Time         // time of the scope's first event
	clock            journal.Clock     // measures how long the scope waited for people or was paused
	asked            journal.Questions // open questions of the scope itself
	questions        int64             // number of questions that the scope itself has asked
	pendingAsk       *a2av1.Message    // question that was decided on and is not asked yet
	decidedReply     *a2av1.Message    // reply that was decided on
	replyFailure     *agent.Error      // why the run fails in place of the reply or transfer
	artifactRecorded bool              // the reply of a run that fails is on record as an artifact
	decidedTransfer  *teamv1.Transfer  // transfer that was decided on
	toolsRecorded    bool              // the tools of the tool sets are on record
	texts            journal.Texts     // messages by sequence number, for references to recorded texts
	failed           *agent.Error      // failure that ends the run
	inputFaults      []string          // what is wrong with the inputs of the run
	failedBelow      bool              // failed is that of a member, which the run itself did not refuse
	cut              *a2av1.Message    // see noteCut
	granted          *teamv1.Spent     // what people have granted to the run's own limits; see takeGrant
	allowed          []string          // keys of the calls that people have allowed, for agent.Run
	checks
}

// batch is a decision and its steps.
type batch struct {
	decided *teamv1.Decided
	steps   []*StepState
}

// visit is the key of cycle detection: a member and the text it was given. In a workflow the step
// is part of the key.
type visit struct{ step, member, text string }

func newFold(l *Loop, req *teamv1.ProcessRequest, root string) *fold {
	f := &fold{loop: l, texts: journal.TextsOf(root, req.GetRecorded())}
	f.Team, f.MaxParallel = l.cfg, l.limits.maxParallel
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
	f.Inputs, f.inputFaults = l.cfg.Inputs.Read(f.Input)
	f.arriveInput()
	return f
}

// apply folds one event of the scope or of a scope below it. Events of other scopes are ignored.
func (f *fold) apply(ev *teamv1.Event) {
	if t := ev.GetTime(); t != nil {
		f.clock.ApplyToTeam(f.Scope, ev, f.Now)
		f.Now = t.AsTime()
		if ev.GetCommanded().GetCommand() == teamv1.Commanded_COMMAND_RESUME {
			f.applyResume(ev)
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

// applyResume folds the end of a pause: it extends the deadlines of all steps that have started.
func (f *fold) applyResume(ev *teamv1.Event) {
	for st := range f.pending() {
		if st.past.Attempts > 0 {
			st.extendDeadline(st.clock.Resumed(ev), f.Now)
		}
	}
}

// step returns the step of the current round with an id, which is its 1-based position among all
// steps of the run; nil if there is none.
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
		f.texts.Add(ev.GetSeq(), journal.MessageOf(f.Root, ev))
		f.applyDecision(k.Decided)
	case *teamv1.Event_Observed:
		f.observe(k.Observed)
	case *teamv1.Event_Noted:
		f.applyNote(k.Noted)
	case *teamv1.Event_Received:
		f.texts.Add(ev.GetSeq(), k.Received.GetMessage())
		if m := k.Received.GetMessage(); m != nil && !k.Received.GetTooLate() {
			f.Received = append(f.Received, m)
			f.arriveFollowUp(ev.GetSeq())
		}
	case *teamv1.Event_Asked:
		f.asked.Apply(ev)
		f.pendingAsk = nil
		f.questions++
	case *teamv1.Event_Answered:
		if _, closed := f.asked.Apply(ev); closed != nil {
			f.Messages = []*a2av1.Message{k.Answered.GetMessage()}
			f.arriveAnswer(ev.GetSeq(), k.Answered.GetMessage())
		}
	case *teamv1.Event_Checked:
		f.applyChecked(ev.GetSeq(), k.Checked)
	case *teamv1.Event_Artifact:
		f.artifactRecorded = true
	default: // only readers need the other events
	}
}

// isAsking reports whether the scope waits for the answer to a question of its own.
func (f *fold) isAsking() bool { return len(f.asked.Open()) > 0 }

// observe folds info and health of members into the roster.
func (f *fold) observe(o *teamv1.Observed) {
	if len(f.Roster) == 0 {
		f.Roster = o.GetMembers() // the first roster is complete; runs share it
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

// applyDecision adds the steps of a decision, and refuses those that may not start.
func (f *fold) applyDecision(d *teamv1.Decided) {
	if d.GetRound() > 0 {
		f.beginRevision(d)
		return
	}
	f.markDropped(d.GetCancel())
	if d.GetPlan() != nil {
		f.Plan = d.GetPlan()
	}
	first := len(f.Steps)
	dispatches := false
	for _, step := range d.GetSteps() {
		st := &StepState{
			Step: step, index: len(f.Earlier) + len(f.Steps), Round: f.dispatched + f.Rounds, ReceivedBefore: len(f.Received), PostedBefore: len(f.Posted), EndedBefore: f.Ended, Scope: f.prefix + step.GetId(),
			Given: f.texts.Resolve(step.GetInput(), f.Input), earlier: step.GetInput().GetEarlier(),
		}
		if r := step.GetRefusal(); r != nil {
			st.Refusal = agent.FromProto(r.GetError())
		} else if st.ByMember() {
			dispatches = true
			st.Refusal = f.admit(st)
		} else if step.GetKind() == teamv1.Step_KIND_JUDGE {
			f.applyJudgement(st, d)
		}
		f.Steps = append(f.Steps, st)
	}
	if dispatches {
		f.Rounds++
	}
	f.replyFailure = agent.FromProto(d.GetFailure())
	if d.GetReply() != nil {
		f.decidedReply = f.texts.Resolve(d.GetReply(), f.Input)
		if d.GetFinalized() != "" {
			f.warnings = append(f.warnings, "the run ended early with what there was: "+d.GetFinalized())
		}
		f.applyScore()
	}
	f.pendingAsk, f.decidedTransfer = d.GetAsk(), d.GetTransfer()
	if len(d.GetSteps()) > 0 {
		f.batches = append(f.batches, batch{d, f.Steps[first:len(f.Steps):len(f.Steps)]})
	}
}

// admit returns why a member's step may not start: it exceeds limits.max_steps, or it gives a
// member a message that the member was given before in this run. nil means that it may start.
func (f *fold) admit(st *StepState) *agent.Error {
	if f.dispatched+f.Rounds >= f.loop.limits.maxSteps {
		return agent.Errorf(agent.CodeInternal, agent.ReasonMaxIterations,
			"team %q ran %d steps, the most it may (%s); a cycle between its members is possible; end it, or raise the limit", f.Team.ID, f.loop.limits.maxSteps, NameOfLimit("max_steps", f.loop.cfg.Limits.GetMaxSteps() > 0))
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
			"team %q: member %q is given the same message a second time in this run; change the message, or end the run", f.Team.ID, v.member).With("member", v.member)
	}
	if f.visited == nil {
		f.visited = map[visit]bool{}
	}
	f.visited[v] = true
	return nil
}

// applyStep folds an event of a step's scope or below it. own reports whether it belongs to the
// step itself.
func (f *fold) applyStep(st *StepState, ev *teamv1.Event, own bool) {
	_, closed := st.past.Asked.Apply(ev)
	waited, held := st.clock.ApplyToStep(st.Scope, ev, &st.past.Asked)
	st.moveDeadline(waited)
	st.extendDeadline(held, f.Now)
	f.applyAnswer(ev, closed)
	if own && st.Step.GetKind() != teamv1.Step_KIND_HUMAN && st.past.ApplyQuestion(f.Path, ev, closed) {
		return
	}
	switch k := ev.GetKind().(type) {
	case *teamv1.Event_Started:
		if own {
			st.past.Start(k.Started)
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
			st.past.Retry(k.Retried)
			return
		}
	case *teamv1.Event_Ended:
		if own {
			f.applyEnded(st, ev)
			return
		}
		f.texts.Add(ev.GetSeq(), journal.MessageOf(f.Root, ev))
		f.noteCut(ev)
	case *teamv1.Event_Decided:
		f.texts.Add(ev.GetSeq(), journal.MessageOf(f.Root, ev)) // a result submitted to a judge may become the answer
	case *teamv1.Event_Waiting:
		if own {
			st.past.Park()
			return
		}
	case *teamv1.Event_Answered:
		f.texts.Add(ev.GetSeq(), k.Answered.GetMessage())
		if own {
			f.applyRuling(st, k.Answered, ev.GetSeq())
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
		return // only readers need these; resuming a run does not
	default:
	}
	st.past.Recorded = append(st.past.Recorded, ev)
}

// applyAnswer folds what an answer grants to the limits of the team or agent, and what calls it allows
// from now on. closed are the questions that the event closes.
func (f *fold) applyAnswer(ev *teamv1.Event, closed []*journal.Question) {
	a := ev.GetAnswered()
	for _, q := range closed {
		asked := q.Event.GetAsked()
		if b := asked.GetBudget(); b != nil && b.GetSetBy() == f.Path {
			f.granted = agent.AddSpent(f.granted, a.GetGrant())
		}
		if asked.GetApproval() != nil && a.GetApproval().GetDecision() == teamv1.Approval_DECISION_APPROVE_ALL {
			f.allowed = append(f.allowed, step.AllowKey(asked.GetApproval()))
		}
	}
}

// takeGrant returns what people have granted to the run's own limits since the last call; nil if that
// is nothing.
func (f *fold) takeGrant() *teamv1.Spent {
	g := f.granted
	f.granted = nil
	return g
}

// moveDeadline moves the deadline of the step, if it has one.
func (st *StepState) moveDeadline(by time.Duration) {
	if by > 0 && !st.past.Deadline.IsZero() {
		st.past.Deadline = st.past.Deadline.Add(by)
	}
}

// extendDeadline moves a step's deadline by the time that the run was paused. It also adds the
// extension to the events that the step's next attempt resumes from, so that scopes below it extend
// their deadlines too.
func (st *StepState) extendDeadline(held time.Duration, now time.Time) {
	if held <= 0 {
		return
	}
	st.moveDeadline(held)
	if n := len(st.past.Recorded); n > 0 {
		st.past.Recorded = append(st.past.Recorded, &teamv1.Event{
			Seq: st.past.Recorded[n-1].GetSeq(), Time: timestamppb.New(now), Scope: st.Scope,
			Kind: &teamv1.Event_Commanded{Commanded: &teamv1.Commanded{Command: teamv1.Commanded_COMMAND_RESUME, Waited: durationpb.New(held)}},
		})
	}
}

// applyEnded folds the end of a step.
func (f *fold) applyEnded(st *StepState, ev *teamv1.Event) {
	e := ev.GetEnded()
	st.Done, st.past.Open = true, false
	st.Outcome, st.Turn, st.Tool, st.Transfer, st.Spent = e.GetOutcome(), e.GetTurn(), e.GetTool(), e.GetTransfer(), e.GetSpent()
	st.Verdict = e.GetVerdict()
	st.EndIndex, st.EndSeq = f.Ended, ev.GetSeq()
	f.Ended++
	if st.EndSeq == 0 {
		st.EndSeq = -int64(f.Ended) // there is no journal
	}
	for _, text := range e.GetWarnings() { // a team passes on those of its members
		text = "member " + strconv.Quote(st.Step.GetMember()) + ": " + text
		if st.ByMember() && !slices.Contains(f.warnings, text) {
			f.warnings = append(f.warnings, text)
		}
	}
	if st.Turn.GetEnd() == teamv1.TurnEnd_TURN_END_TRUNCATED {
		f.warnings = append(f.warnings, agent.CutWarning)
	}
	if st.Err = agent.FromProto(e.GetError()); st.Err != nil {
		st.Turn = nil // it is not whole
	}
	if f.loop.traits.WithholdsText {
		f.noteCut(ev)
	}
	if ref := e.GetReplyRef(); ref != 0 {
		st.Message, st.seq = f.texts.At(ref), ref
	} else if m := journal.MessageOf(f.Root, ev); m != nil {
		st.Message, st.seq = m, ev.GetSeq()
	}
	f.texts.Add(st.seq, st.Message)
	st.past.Recorded = nil
	if err := st.Failure(); err != nil && f.failed == nil && f.fatal(st) {
		f.failed, f.failedBelow = err, st.Refusal == nil && !agent.Binds(err, f.Path)
	}
	f.failAtLimit(st)
	for f.done < len(f.Steps) && f.Steps[f.done].Done {
		f.done++
	}
	f.applyBatches()
}

// noteCut notes what there is of an answer that a limit of output tokens cut, if readers were not shown it.
func (f *fold) noteCut(ev *teamv1.Event) {
	if e := ev.GetEnded(); e.GetTurn() != nil && e.GetError().GetReason() == agent.ReasonAnswerTruncated {
		f.cut = journal.MessageOf(f.Root, ev)
	}
}

// fatal reports whether the failure of a step ends the run.
func (f *fold) fatal(st *StepState) bool {
	if f.Team.Scheduler.Handles(st) {
		return false
	}
	return !f.Team.ReportErrors || st.BeyondLimit()
}

// applyBatches applies each decision whose steps have all ended: its updates of the context, then
// its results as last response and current message.
func (f *fold) applyBatches() {
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
		f.setLast(b.steps)
		return true
	})
}

// setLast makes the results of a batch the last response. Batches without a member's step change
// nothing.
func (f *fold) setLast(batch []*StepState) {
	if len(batch) == 1 {
		f.setLastOne(batch[0])
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

// setLastOne is setLast for a batch of one step.
func (f *fold) setLastOne(st *StepState) {
	if !st.ByMember() {
		return
	}
	last := &struct { // a single allocation, because this runs once a step
		result  Result
		message [1]*a2av1.Message
	}{Result{Member: st.Step.GetMember(), Outcome: st.Outcome, Message: st.Message}, [1]*a2av1.Message{st.Message}}
	f.Last = &last.result
	if st.Message != nil {
		f.Messages = last.message[:]
	}
}

// applyRuling folds the answer to a step's own question. A decision about an approval does not pass
// through the input middlewares.
func (f *fold) applyRuling(st *StepState, a *teamv1.Answered, seq int64) {
	switch st.Step.GetKind() {
	case teamv1.Step_KIND_TOOL:
		st.past.Ruling = a.GetMessage()
	case teamv1.Step_KIND_HUMAN:
		st.Message, st.seq, st.Approval = a.GetMessage(), seq, a.GetApproval()
		if st.Step.GetAsk().GetApproval() == nil {
			f.arriveHuman(st)
		}
	default:
	}
}

// markDropped marks the open steps that a decision cancels.
func (f *fold) markDropped(ids []string) {
	for _, id := range ids {
		if st := f.step(id); st != nil && !st.Done {
			st.Dropped = true
		}
	}
}

// applyJudgement folds a step that submits a result to the judge.
func (f *fold) applyJudgement(st *StepState, d *teamv1.Decided) {
	if f.review == nil || f.review.received != st.ReceivedBefore {
		f.review = &review{result: st.Given, joins: d.GetJoins(), received: st.ReceivedBefore}
	}
	f.review.judgements = append(f.review.judgements, st)
}

// applyScore adds a warning if the reply was judged, but has no score.
func (f *fold) applyScore() {
	if f.review == nil || f.replyFailure != nil {
		return
	}
	if _, scored := f.review.score(); !scored {
		f.warnings = append(f.warnings, "the result has no score: "+f.review.fault())
	}
}

// beginRevision starts a new round of revision. Schedulers see an empty list of steps.
func (f *fold) beginRevision(d *teamv1.Decided) {
	f.originalMessage = f.originalInput()
	f.earlierReceived = append(f.earlierReceived, f.Received...)
	f.Earlier = append(f.Earlier, f.Steps...)
	f.dispatched += f.Rounds
	f.revision, f.Input, f.Messages = int(d.GetRound()), d.GetInput(), []*a2av1.Message{d.GetInput()}
	f.Steps, f.done, f.Rounds, f.Last, f.Received, f.review, f.visited, f.Plan = nil, 0, 0, nil, nil, nil, nil, nil
}

// failAtLimit ends the run when a limit that binds all of it has refused a step, unless the
// scheduler still takes a final turn. If the step is a judgement, the gate decides what the refusal
// means.
func (f *fold) failAtLimit(st *StepState) {
	if !agent.Binds(st.Err, f.Path) || st.Step.GetKind() == teamv1.Step_KIND_JUDGE {
		return
	}
	final := f.loop.traits.FinalTurn
	if f.failed == nil && (final == "" || final == st.Step.GetName()) {
		f.failed = st.Err
	}
}

// applyNote folds a note of the scope itself: the list of tools.
func (f *fold) applyNote(n *teamv1.Noted) {
	switch n.GetCode() {
	case agent.NoteMessages:
		f.applyPosted(n)
		return
	case agent.NoteTools:
	default:
		return
	}
	f.toolsRecorded = true
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
	for _, v := range n.GetDetails().GetFields()["missing"].GetListValue().GetValues() {
		f.MissingTools = append(f.MissingTools, v.GetStringValue())
		f.warnings = append(f.warnings, v.GetStringValue())
	}
}
