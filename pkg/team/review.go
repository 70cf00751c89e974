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

// Review has a judge look at every result of a run before it is the answer.
// One that is not good enough is worked over: the scheduler begins anew, with the
// message of the run, the result, and what the judge said of it. What the run has
// put into its context stays, and so do the counts of its limits; cycles are looked
// for in each round by itself.
//
// A run at the root that has a brief with a threshold or a number of rounds is
// reviewed as well, by the default judge where its agent has no review of its own.
// Of bounds that are set in more than one place the brief's threshold and the
// smallest number of rounds hold, that of the limits of teams above included.
//
// At most one of Model, Check and Agent is set. None is the team's model, and in a
// team without one a check that there is something in the result.
type Review struct {
	// Model judges with a rubric made of what is expected.
	Model agent.Model
	// Check judges by itself, see [expr.CompileCheck].
	Check *expr.Expr
	// Agent is the id in Config.Registry of an agent that judges: it is asked in words
	// and answers with a JSON object {"score", "feedback"}, or with a score alone.
	Agent string
	// Expected is what is to come out of a run, in words; a brief says it for its run.
	Expected string
	// Threshold is the least score, 0 to 1. A run whose last round does not reach it
	// fails with QUALITY_THRESHOLD_NOT_MET, and the result stays readable.
	// nil: a result is worked over as long as the judge says what to improve, and
	// the last one is the answer.
	Threshold *float64
	// MaxRounds are the most rounds, the first one included; 0 is
	// Limits.MaxRounds, and that is 3.
	MaxRounds int
}

// defaultRevisions are the rounds of a run where nobody says how many.
const defaultRevisions = 3

// Who judges, as the steps of judgements are labelled.
const (
	byModel = "model"
	byCheck = "check"
	byAgent = "agent"
)

// judgeName stands for a judge that is no agent in paths.
const judgeName = "judge"

// maxAsked is how often a judge is asked about one result.
const maxAsked = 2

// faults of a review, in the words of the configuration.
func (r *Review) faults(c *Config) []error {
	if r == nil {
		return nil
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, agent.Errorf(agent.CodeInvalidArgument, agent.ReasonInvalidTeamConfig, format, args...))
	}
	kinds := 0
	for _, is := range []bool{r.Model != nil, r.Check != nil, r.Agent != ""} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		fault("team %q: review.judge is %d of model, check and agent; keep one of them", c.ID, kinds)
	}
	if r.Agent != "" && c.Registry == nil {
		fault("team %q: review.judge is agent %q and there is no registry to find it in; give the team one", c.ID, r.Agent)
	}
	if r.Check != nil && !r.Check.IsCheck() {
		fault("team %q: review.judge.check is no check; compile it as one", c.ID)
	}
	if t := r.Threshold; t != nil && !verdict.Scored(*t) {
		fault("team %q: review.threshold is %v; it must be 0 to 1", c.ID, *t)
	}
	if r.MaxRounds < 0 {
		fault("team %q: review.max_rounds is %d; it must be at least 1, or left out for limits.max_rounds", c.ID, r.MaxRounds)
	}
	return faults
}

// gate judges the results of one call. It never changes.
type gate struct {
	Review
	by    string // who judges
	brief *teamv1.Brief
}

// gateOf is the gate of a call; nil: its results are not judged.
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
	g.MaxRounds = leastOf(g.MaxRounds, int(c.Limits.GetMaxRounds()), roundsOf(ctx))
	if bounds {
		g.MaxRounds = leastOf(g.MaxRounds, int(brief.GetMaxRounds()))
		g.Threshold = cmp.Or(brief.QualityThreshold, g.Threshold) //nolint:protogetter // set or not matters
	}
	g.MaxRounds = cmp.Or(g.MaxRounds, defaultRevisions)
	g.Expected = cmp.Or(brief.GetExpectedOutput(), g.Expected)
	switch {
	case g.Agent != "":
		g.by = byAgent
	case g.Check != nil || g.Model == nil && c.Model == nil:
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
	result *a2av1.Message
	joins  []string
	heard  int          // follow-ups that had come when it was handed in
	asked  []*StepState // judgements of it
}

// last is the last judgement.
func (r *review) last() *StepState { return r.asked[len(r.asked)-1] }

// score is what the judge gave; false: nothing.
func (r *review) score() (float64, bool) {
	v := r.last().Verdict
	return v.GetScore(), v != nil && v.Score != nil //nolint:protogetter // 0 is a score
}

// fault is why there is no score.
func (r *review) fault() string {
	if st := r.last(); st.Err != nil {
		return st.Err.Message
	}
	return cmp.Or(r.last().Verdict.GetFault(), "the judge did not answer")
}

// choice is a decision, of the scheduler or of the gate behind it.
type choice struct {
	Decision
	round   int            // or: a round of revision begins
	input   *a2av1.Message // with this
	failure *agent.Error   // why Reply is not what was asked for
}

// next is what the scheduler says, with its reply handed in to the judge first. As
// pure as the scheduler.
func (g *gate) next(s *State, scheduler Scheduler) (choice, error) {
	if r := s.review; r != nil && r.heard == len(s.Received) {
		return g.judged(s, r)
	}
	d, err := scheduler.Next(s.unjudged()) // also where the user has said more meanwhile
	if err == nil && d.Reply != nil {
		d = g.handIn(s, d)
	}
	return choice{Decision: d}, err
}

// handIn has a reply judged. What is open is not needed any more, as at the end of a run.
func (g *gate) handIn(s *State, d Decision) Decision {
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

// judged is what follows from a judgement: the answer, a further round, the end.
func (g *gate) judged(s *State, r *review) (choice, error) {
	if len(s.Open()) > 0 {
		return choice{}, nil // it is being dropped
	}
	if last := r.last(); g.Threshold != nil && agent.Binds(last.Err, s.Path) {
		return choice{}, last.Err
	}
	score, scored := r.score()
	switch {
	case !scored && r.last().Err == nil && g.by != byCheck && len(r.asked) < maxAsked:
		return choice{Decision: Decision{
			Steps: []*teamv1.Step{g.step(r.result)}, Joins: r.joins, Reason: "the judge is asked once more: " + r.fault(),
		}}, nil
	case !scored && g.Threshold == nil:
		return choice{Decision: Decision{Reply: r.result, Joins: r.joins, Reason: "the judge gave no score: " + r.fault()}}, nil
	case !scored:
		return g.unmet(s, r, "its judge gave no score: "+r.fault()), nil
	}
	d := choice{Decision: Decision{Reason: "the score is " + g.worded(score), Values: g.values(score)}}
	switch {
	case g.content(score, r.last().Verdict):
		d.Reply, d.Joins = r.result, r.joins
	case s.round() < g.MaxRounds:
		d.round, d.input = s.round()+1, g.revised(s, r)
	case g.Threshold == nil:
		d.Reply, d.Joins = r.result, r.joins
		d.Reason += fmt.Sprintf(", and there are no more rounds than %d", g.MaxRounds)
	default:
		return g.unmet(s, r, "the score is "+g.worded(score)), nil
	}
	return d, nil
}

// content reports whether a result is good enough.
func (g *gate) content(score float64, v *teamv1.Verdict) bool {
	if g.Threshold != nil {
		return score >= *g.Threshold
	}
	return score >= 1 || v.GetFeedback() == ""
}

// worded is a score as people read it.
func (g *gate) worded(score float64) string {
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

// unmet ends the run without an answer, and keeps the result.
func (g *gate) unmet(s *State, r *review, why string) choice {
	err := agent.Errorf(agent.CodeInternal, agent.ReasonQuality,
		"the result of %q was not good enough after round %d of %d: %s; it is kept as it is; ask for less, or allow more rounds", s.Team.ID, s.round(), g.MaxRounds, why)
	if score, ok := r.score(); ok {
		err = err.With("score", verdict.Number(score))
	}
	err = err.With("rounds", strconv.Itoa(s.round())).With("threshold", verdict.Number(*g.Threshold))
	return choice{Decision: Decision{Reply: r.result, Joins: r.joins, Reason: why}, failure: err}
}

// revised is what a further round is given.
func (g *gate) revised(s *State, r *review) *a2av1.Message {
	first := s.begin()
	var j prompt.Joiner
	j.Add(first.GetParts())
	for _, said := range slices.Concat(s.said, s.Received) {
		j.Add(said.GetParts())
	}
	j.Section("The last result", r.result.GetParts())
	score, _ := r.score()
	about := "It was given " + g.worded(score) + "."
	if v := r.last().Verdict; v.GetFeedback() != "" {
		about += "\n\n" + v.GetFeedback()
	}
	j.Section("What is said of it", agent.TextParts(about))
	m := j.Message()
	m.Role, m.ContextId, m.Metadata = a2av1.Role_ROLE_USER, first.GetContextId(), first.GetMetadata()
	return m
}

// unjudged is the state as a scheduler sees it: without the judge's steps.
func (s *State) unjudged() *State {
	if s.review == nil {
		return s
	}
	v := *s
	v.Steps = slices.DeleteFunc(slices.Clone(s.Steps), func(st *StepState) bool { return st.Step.GetKind() == teamv1.Step_KIND_JUDGE })
	v.hidden, v.done = len(s.Steps)-len(v.Steps), 0
	return &v
}

// checkBrief refuses bounds of a brief that bound nothing.
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
