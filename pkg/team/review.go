package team

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/expr"
	"github.com/agentteams/team-server/pkg/team/internal/verdict"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Review has a judge score every result of a run before it becomes the answer. A result that is not
// good enough is revised: the scheduler starts a new round, whose input is the message of the run,
// the last result, and the judge's feedback. The run's context and the counts of its limits carry
// over to the next round; cycle detection starts anew.
//
// A root run whose brief sets a threshold or a number of rounds is reviewed too, by the default
// judge if its agent has no review of its own. The brief's threshold overrides the team's. Of the
// numbers of rounds that are set in the review, the brief, and the limits of the team and the teams
// above it, the smallest holds.
//
// At most one of Model, Check, Format and Agent may be set. If none is, the judge is the team's model; in a
// team without a model it is a check that the result is not empty.
type Review struct {
	// Model judges, with the expected output as part of its prompt.
	Model agent.Model
	// Check is an expression that scores the result; see [expr.CompileCheck].
	Check *expr.Expr
	// Format returns the data in a result, or an error that says what is wrong with it; such a result
	// has the score 0, others 1. It must be a pure function and safe for concurrent use. The method Fit
	// of guard.Schema is one.
	Format func(m *a2av1.Message) (*structpb.Value, error)
	// Agent is the id in Config.Registry of an agent that judges. It is asked in plain text, and
	// answers with a JSON object {"score", "feedback"} or with a score alone.
	Agent string
	// Expected describes what a run should produce. A brief overrides it for its run.
	Expected string
	// Threshold is the minimum score, 0 to 1. A run whose last round stays below it fails with
	// QUALITY_THRESHOLD_NOT_MET; the result stays readable as an artifact. If Threshold is nil, a
	// result is revised as long as the judge has feedback, and the last result is the answer.
	Threshold *float64
	// MaxRounds is the maximum number of rounds, including the first. 0 means Limits.MaxRounds,
	// whose default is 3.
	MaxRounds int

	// judgesMember says that the results of one member are judged, which the brief says nothing about:
	// it describes the result of the whole run. withholdsVerdict says that errors do not quote what the
	// judge said, because it may quote a result that guardrails withhold.
	judgesMember, withholdsVerdict bool
}

// defaultRevisions is the maximum number of rounds if nothing sets one.
const defaultRevisions = 3

// The kinds of judges, as recorded in the names of their steps.
const (
	byModel = "model"
	byCheck = "check"
	byAgent = "agent"
)

// judgeName is the member of a judgement's step, and part of its path, if the judge is not an
// agent.
const judgeName = "judge"

// maxQuotedFeedback is how much of a judge's feedback is quoted in an error, in bytes.
const maxQuotedFeedback = 512

// maxAsked is how often a judge is asked about one result.
const maxAsked = 2

// faults returns what is wrong with the review at a place of a team's configuration, in terms of the
// configuration file. A nil Review has no faults.
func (r *Review) faults(c *Config, at string) []error {
	if r == nil {
		return nil
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, format, args...))
	}
	kinds := 0
	for _, is := range []bool{r.Model != nil, r.Check != nil, r.Format != nil, r.Agent != ""} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		fault("team %q: %s.judge is %d of model, check, schema and agent; keep one of them", c.ID, at, kinds)
	}
	if r.Agent != "" && c.Registry == nil {
		fault("team %q: %s.judge is agent %q, but the team has no registry to find it in; set Registry", c.ID, at, r.Agent)
	}
	if r.Check != nil && !r.Check.IsCheck() {
		fault("team %q: %s.judge.check was not compiled as a check; use expr.CompileCheck", c.ID, at)
	}
	if t := r.Threshold; t != nil && !verdict.Scored(*t) {
		fault("team %q: %s.threshold is %v; it must be 0 to 1", c.ID, at, *t)
	}
	if r.MaxRounds < 0 {
		fault("team %q: %s.max_rounds is %d; it must be at least 1, or left out for limits.max_rounds", c.ID, at, r.MaxRounds)
	}
	return faults
}

// gate judges the results of one call. It is immutable.
type gate struct {
	Review
	by    string // kind of judge: byModel, byCheck or byAgent
	brief *teamv1.Brief
}

// gateOf returns the gate of a call; nil if its results are not judged.
func gateOf(ctx context.Context, c *Config, req *teamv1.ProcessRequest) *gate {
	brief := req.GetBrief()
	bounds := brief != nil && (brief.QualityThreshold != nil || brief.MaxRounds != nil) && req.GetScope() == "" && req.GetDepth() == 0 //nolint:protogetter // set or not matters
	if c.Review == nil && !bounds {
		return nil
	}
	g := &gate{brief: brief}
	if c.Review != nil {
		g.Review = *c.Review
	}
	g.withholdsVerdict = g.withholdsVerdict || len(c.Guards.Output) > 0
	if g.judgesMember {
		brief, g.brief = nil, nil
	}
	g.MaxRounds = minRounds(g.MaxRounds, int(c.Limits.GetMaxRounds()), inheritedRounds(ctx))
	if bounds {
		g.MaxRounds = minRounds(g.MaxRounds, int(brief.GetMaxRounds()))
		g.Threshold = cmp.Or(brief.QualityThreshold, g.Threshold) //nolint:protogetter // set or not matters
	}
	g.MaxRounds = cmp.Or(g.MaxRounds, defaultRevisions)
	g.Expected = cmp.Or(brief.GetExpectedOutput(), g.Expected)
	switch {
	case g.Agent != "":
		g.by = byAgent
	case g.Check != nil || g.Format != nil || g.Model == nil && c.Model == nil:
		g.by = byCheck
	case g.Model == nil:
		g.by, g.Model = byModel, c.Model
	default:
		g.by = byModel
	}
	return g
}

// review is a result that is being judged.
type review struct {
	result     *a2av1.Message
	joins      []string
	received   int          // number of follow-ups that had arrived when the result was submitted
	judgements []*StepState // judgements of the result, in order
}

// last returns the last judgement.
func (r *review) last() *StepState { return r.judgements[len(r.judgements)-1] }

// score returns the score of the last judgement; ok is false if the judge gave none.
func (r *review) score() (score float64, ok bool) {
	v := r.last().Verdict
	return v.GetScore(), v != nil && v.Score != nil //nolint:protogetter // 0 is a score
}

// fault returns why the last judgement has no score.
func (r *review) fault() string {
	if st := r.last(); st.Err != nil {
		return st.Err.Message
	}
	return cmp.Or(r.last().Verdict.GetFault(), "the judge did not answer")
}

// choice is a decision of the scheduler or of its gate.
type choice struct {
	Decision
	round   int            // if positive, a new round of revision begins
	input   *a2av1.Message // input of that round
	failure *agent.Error   // why the run fails although it has a Reply or Transfer
}

// next returns the scheduler's decision, with a reply replaced by a step that submits it to the
// judge. A reply without its required work is not judged. Like Scheduler.Next it is a pure function.
func (g *gate) next(s *State, scheduler Scheduler) (choice, error) {
	if r := s.review; r != nil && r.received == len(s.Received) {
		return g.afterJudgement(s, r)
	}
	d, err := scheduler.Next(s.withoutJudgements()) // also if the user has sent a follow-up since the result was submitted
	c := s.chosen(d)
	if err == nil && d.Reply != nil && c.failure == nil {
		c.Decision = g.submit(s, d)
	}
	return c, err
}

// submit replaces a reply by a step that judges it. Open steps are canceled, as at the end of a
// run.
func (g *gate) submit(s *State, d Decision) Decision {
	d.Joins = s.joins(&d)
	for st := range s.pending() {
		d.Cancel = append(d.Cancel, st.Step.GetId())
	}
	d.Steps, d.Reply = []*teamv1.Step{g.step(d.Reply)}, nil
	return d
}

func (g *gate) step(result *a2av1.Message) *teamv1.Step {
	return &teamv1.Step{
		Kind: teamv1.Step_KIND_JUDGE, Name: g.by, Member: cmp.Or(g.Agent, judgeName), Input: &teamv1.Input{Message: result},
	}
}

// afterJudgement returns the decision that follows a judgement: the reply, a new round, or a
// failure.
func (g *gate) afterJudgement(s *State, r *review) (choice, error) {
	if len(s.Open()) > 0 {
		return choice{}, nil // the judgement, or a step canceled by submit, is still open
	}
	if last := r.last(); g.Threshold != nil && agent.Binds(last.Err, s.Path) {
		return choice{}, last.Err
	}
	score, scored := r.score()
	switch {
	case !scored && r.last().Err == nil && g.by != byCheck && len(r.judgements) < maxAsked:
		return choice{Decision: Decision{
			Steps: []*teamv1.Step{g.step(r.result)}, Joins: r.joins, Reason: "the judge is asked once more: " + r.fault(),
		}}, nil
	case !scored && g.Threshold == nil:
		return choice{Decision: Decision{Reply: r.result, Joins: r.joins, Reason: "the judge gave no score: " + r.fault()}}, nil
	case !scored:
		return g.rejectResult(s, r, "its judge gave no score", r.fault()), nil
	}
	d := choice{Decision: Decision{Reason: "the score is " + g.scoreText(score), Values: g.values(score)}}
	switch {
	case g.isGoodEnough(score, r.last().Verdict):
		d.Reply, d.Joins = r.result, r.joins
	case s.round() < g.MaxRounds:
		d.round, d.input = s.round()+1, g.revisionInput(s, r)
	case g.Threshold == nil:
		d.Reply, d.Joins = r.result, r.joins
		d.Reason += fmt.Sprintf(", and there are no more rounds than %d", g.MaxRounds)
	default:
		said := ""
		if g.judgesMember {
			said = r.last().Verdict.GetFeedback()
		}
		return g.rejectResult(s, r, "the score is "+g.scoreText(score), said), nil
	}
	return d, nil
}

// isGoodEnough reports whether a result is accepted.
func (g *gate) isGoodEnough(score float64, v *teamv1.Verdict) bool {
	if g.Threshold != nil {
		return score >= *g.Threshold
	}
	return score >= 1 || v.GetFeedback() == ""
}

// scoreText returns a score, and the threshold if there is one, for people.
func (g *gate) scoreText(score float64) string {
	if g.Threshold == nil {
		return verdict.Number(score)
	}
	return verdict.Number(score) + ", and " + verdict.Number(*g.Threshold) + " is asked for"
}

func (g *gate) values(score float64) *structpb.Struct {
	v := map[string]*structpb.Value{"score": structpb.NewNumberValue(score)}
	if g.Threshold != nil {
		v["threshold"] = structpb.NewNumberValue(*g.Threshold)
	}
	return &structpb.Struct{Fields: v}
}

// rejectResult ends the run with a failure, and keeps the result as an artifact, unless it is that of a
// member. said is what the judge said of the result.
func (g *gate) rejectResult(s *State, r *review, why, said string) choice {
	err := agent.Errorf(agent.CodeInternal, agent.ReasonQuality,
		"the result of %q was not good enough after round %d of %d: %s; the result is kept as an artifact; lower the threshold, or allow more rounds", s.Team.ID, s.round(), g.MaxRounds, why)
	if g.judgesMember {
		err.Message = fmt.Sprintf("member %q has no accepted result after round %d of %d: %s; say in its instructions what is expected, or allow more rounds (accept.max_rounds)", s.Team.ID, s.round(), g.MaxRounds, why)
	}
	if said != "" && !g.withholdsVerdict {
		err.Message += ". The judge said: " + agent.Excerpt(said, maxQuotedFeedback)
	}
	if score, ok := r.score(); ok {
		err = err.With("score", verdict.Number(score))
	}
	err = err.With("rounds", strconv.Itoa(s.round())).With("threshold", verdict.Number(*g.Threshold))
	return choice{Decision: Decision{Reply: r.result, Joins: r.joins, Reason: why}, failure: err}
}

// revisionInput returns the input of the next round.
func (g *gate) revisionInput(s *State, r *review) *a2av1.Message {
	first := s.originalInput()
	var j prompt.Joiner
	j.Add(first.GetParts())
	for _, said := range slices.Concat(s.earlierReceived, s.Received) {
		j.Add(said.GetParts())
	}
	last := r.result.GetParts()
	if g.judgesMember { // the member may return types of files that it does not take
		last = agent.TextParts(prompt.Text(r.result))
	}
	j.Section("The last result", last)
	score, _ := r.score()
	about := "It was given " + g.scoreText(score) + "."
	if v := r.last().Verdict; v.GetFeedback() != "" {
		about += "\n\n" + v.GetFeedback()
	}
	j.Section("What is said of it", agent.TextParts(about))
	m := j.Message()
	m.Role, m.ContextId, m.Metadata = a2av1.Role_ROLE_USER, first.GetContextId(), first.GetMetadata()
	return m
}

// withoutJudgements returns the state as schedulers see it, without the judge's steps.
func (s *State) withoutJudgements() *State {
	if s.review == nil {
		return s
	}
	v := *s
	v.Steps = slices.DeleteFunc(slices.Clone(s.Steps), func(st *StepState) bool { return st.Step.GetKind() == teamv1.Step_KIND_JUDGE })
	v.hiddenSteps, v.done = len(s.Steps)-len(v.Steps), 0
	return &v
}

// checkBrief returns the error of a brief whose threshold or number of rounds is out of range.
func checkBrief(b *teamv1.Brief) error {
	switch {
	case b == nil:
	case b.QualityThreshold != nil && !verdict.Scored(b.GetQualityThreshold()): //nolint:protogetter // set or not matters
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "brief.quality_threshold is %v; it must be 0 to 1", b.GetQualityThreshold())
	case b.MaxRounds != nil && b.GetMaxRounds() < 1: //nolint:protogetter // set or not matters
		return agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidRequest, "brief.max_rounds is %d; it must be at least 1", b.GetMaxRounds())
	}
	return nil
}
