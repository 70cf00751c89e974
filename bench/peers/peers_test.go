// Package bench measures the same teams in this framework and in others, side by
// side. See ../README.md.
package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trpc.group/trpc-go/trpc-agent-go/model"

	"github.com/agentteams/team-server/bench/measure"
)

// framework makes teams of custom members that count: each gives the number after
// the last one it was given. A nil rival is a team that the framework has not.
type framework interface {
	// sequence is n members, one after the other.
	sequence(b *testing.B, n int) start
	// parallel is n members at the same time, each of which answers 1.
	parallel(b *testing.B, n int) start
	// lead is a model that calls one of n members and then answers with its result.
	lead(b *testing.B, n int) start
	// handOver is a model that picks one of n members, whose answer is the team's.
	handOver(b *testing.B, n int) start
	// swarm is a member with a model that hands over to another one with a model.
	swarm(b *testing.B) start
	// depth is a member within n teams of one.
	depth(b *testing.B, n int) start
	// history is a turn of a model that is shown n messages and the new one.
	history(b *testing.B, n int) start
}

// start is the start of a rival.
type start func(b *testing.B) (measure.Call, func())

// frameworks by name, ours first.
func frameworks() ([]string, []framework) {
	return []string{"store", "loop", "eino", "adk", "trpc"}, []framework{ours{driven: true}, ours{}, eino{}, adk{}, trpc{model.ObjectTypeChatCompletion}}
}

// kase is a team that all frameworks make.
type kase struct {
	name  string
	talks bool // each run has a conversation of its own, so there are only so many
	start func(b *testing.B, f framework) start
}

func kases() []kase {
	all := []kase{
		{"one member", false, func(b *testing.B, f framework) start { return f.sequence(b, 1) }},
		{"sequence of 3", false, func(b *testing.B, f framework) start { return f.sequence(b, 3) }},
		{"parallel of 10", false, func(b *testing.B, f framework) start { return f.parallel(b, 10) }},
		{"lead calls 1 of 10", false, func(b *testing.B, f framework) start { return f.lead(b, 10) }},
		{"lead hands over to 1 of 10", false, func(b *testing.B, f framework) start { return f.handOver(b, 10) }},
		{"swarm, one hand-off", false, func(b *testing.B, f framework) start { return f.swarm(b) }},
	}
	for _, n := range []int{1, 2, 5, 10} {
		all = append(all, kase{"depth " + strconv.Itoa(n), false, func(b *testing.B, f framework) start { return f.depth(b, n) }})
	}
	for _, n := range []int{10, 100, 1000} {
		all = append(all, kase{"history " + strconv.Itoa(n), true, func(b *testing.B, f framework) start { return f.history(b, n) }})
	}
	return all
}

// talks is how many runs there are at most in a round of the cases with a history:
// each has a conversation of its own.
const talks = 50

// talksOf is how many there are.
func talksOf(b *testing.B) int {
	b.Helper()
	if n := measure.BudgetOf(b).Ops; n > 0 {
		return min(n, talks)
	}
	return talks
}

// BenchmarkPeers runs every team in every framework in turn.
func BenchmarkPeers(b *testing.B) {
	t := &measure.Table{
		Title: "the same teams, models and members in this process",
		Head:  "team\tframework\ttime\tcpu\tallocs\tB\txbest peer\txcpu\txallocs",
		Goals: []string{
			"store: this framework with its journal in memory; loop: the same as a library; the best peer is the one with the least time.",
			"cpu is that of all threads: it suffers less from what else the machine does.",
			"What the others keep differs, see ../README.md.",
			"goal 5: team=sequence of 3, framework=store: xbest peer <= 0.33",
		},
	}
	b.ReportMetric(0, "ns/op")
	for _, k := range kases() {
		k.compare(b, t)
	}
	t.Print()
}

// compare runs one team in all frameworks and adds their rows.
func (k kase) compare(b *testing.B, t *measure.Table) {
	b.Helper()
	w := measure.BudgetOf(b)
	if k.talks {
		w = measure.Budget{Ops: talksOf(b)}
	}
	var rivals []measure.Rival
	var missing []string
	names, all := frameworks()
	for i, f := range all {
		if s := k.start(b, f); s != nil {
			rivals = append(rivals, measure.Rival{Name: names[i], Start: s})
		} else {
			missing = append(missing, names[i])
		}
	}
	got := measure.Race(b, w, 1, rivals)
	best := 2 // behind store and loop
	for i := 3; i < len(rivals); i++ {
		if measure.Median(got[i], measure.Each) < measure.Median(got[best], measure.Each) {
			best = i
		}
	}
	for i, r := range rivals {
		t.Add("%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f", k.name, r.Name,
			measure.Short(measure.Median(got[i], measure.Each)), measure.Short(measure.Median(got[i], measure.CPU)),
			measure.Median(got[i], measure.Allocs), measure.Median(got[i], measure.Bytes),
			measure.Ratio(got[i], got[best], measure.Each), measure.Ratio(got[i], got[best], measure.CPU), measure.Ratio(got[i], got[best], measure.Allocs))
	}
	for _, name := range missing {
		t.Add("%s\t%s\t-\t-\t-\t-\t-\t-\t-", k.name, name)
	}
	unit := strings.ReplaceAll(strings.ReplaceAll(k.name, ",", ""), " ", "-")
	b.ReportMetric(measure.Ratio(got[0], got[best], measure.Each), unit+"-x")
}

// shared is a start whose rounds share what they run.
func shared(run measure.Call) start {
	return func(*testing.B) (measure.Call, func()) { return run, func() {} }
}

// count is the work of a member: the number after the last one in a text.
func count(text string) (string, error) {
	i := strings.LastIndexAny(text, "0123456789")
	if i < 0 {
		return "", fmt.Errorf("no number in %q", text)
	}
	from := i
	for from > 0 && text[from-1] >= '0' && text[from-1] <= '9' {
		from--
	}
	n, err := strconv.Atoi(text[from : i+1])
	return strconv.Itoa(n + 1), err
}

// want finds out whether a run said what it should, in the order it should.
func want(said []string, err error, answers ...string) error {
	if err == nil && !slices.Equal(said, answers) {
		err = fmt.Errorf("the run said %q, want %q", said, answers)
	}
	return err
}

// upTo are the answers of a sequence.
func upTo(n int) []string {
	answers := make([]string, n)
	for i := range answers {
		answers[i] = strconv.Itoa(i + 1)
	}
	return answers
}

// ones are the answers of members that were all given a 0.
func ones(n int) []string { return slices.Repeat([]string{"1"}, n) }

// names of n members.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "m" + strconv.Itoa(i) + "_"
	}
	return all
}

// describes is what leads are told of their members.
const describes = "counts one up from the number it is given"

// line is a message of a conversation.
func line(i int) string {
	return fmt.Sprintf("message %d of a conversation that has gone on for some time", i)
}

// errOffered: a model was not offered the members.
var errOffered = errors.New("the model is not offered all members")
