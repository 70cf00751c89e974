package prometheus_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// metric is a metric of docs/metrics.md.
type metric struct {
	kind   string
	labels []string
}

// row matches a row of the table of metrics. The tests of internal/metrics compare the table with what a server exposes.
var row = regexp.MustCompile("(?m)^\\| `(team_server_[a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")

// exposed returns the metrics that a server exposes, by the names that queries use.
func exposed(t *testing.T) map[string]metric {
	t.Helper()
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metric{
		"up":                            {kind: "gauge"},
		"go_goroutines":                 {kind: "gauge"},
		"process_resident_memory_bytes": {kind: "gauge"},
	}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		names := strings.Fields(strings.NewReplacer("`", "", ",", " ").Replace(m[3]))
		if m[2] != "histogram" {
			all[m[1]] = metric{m[2], names}
			continue
		}
		all[m[1]+"_bucket"] = metric{"counter", append([]string{"le"}, names...)}
		all[m[1]+"_sum"], all[m[1]+"_count"] = metric{"counter", names}, metric{"counter", names}
	}
	if len(all) < 30 {
		t.Fatalf("docs/metrics.md lists only %d metrics", len(all))
	}
	return all
}

// scraped are the labels that Prometheus adds to what it scrapes.
var scraped = []string{"job", "instance"}

// faults returns what is wrong with a query: its syntax, metrics and labels that do not exist, counters that are read
// without a rate, and gauges that are read with one.
func faults(all map[string]metric, query string) (list []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	var rated []*parser.VectorSelector
	check := func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.Call:
			if slices.Contains([]string{"rate", "increase"}, n.Func.Name) {
				if m, ok := n.Args[0].(*parser.MatrixSelector); ok {
					rated = append(rated, m.VectorSelector.(*parser.VectorSelector))
				}
			}
		case *parser.VectorSelector:
			of, ok := all[n.Name]
			if !ok {
				list = append(list, "no metric "+n.Name)
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(of.labels, m.Name) && !slices.Contains(scraped, m.Name) {
					list = append(list, n.Name+" has no label "+m.Name)
				}
			}
			if (of.kind == "counter") != slices.Contains(rated, n) {
				list = append(list, n.Name+" is a "+of.kind+"; counters, and only these, are read as rate or increase")
			}
			for _, outer := range path {
				if a, ok := outer.(*parser.AggregateExpr); ok && !a.Without {
					for _, name := range a.Grouping {
						if !slices.Contains(of.labels, name) && !slices.Contains(scraped, name) {
							list = append(list, n.Name+" has no label "+name+" to group by")
						}
					}
				}
			}
		}
		return nil
	}
	parser.Inspect(expr, check)
	return list
}

func TestT_44_Alerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile("../../deploy/prometheus/alerts.yaml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	all, n := exposed(t), 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			n++
			for _, f := range faults(all, r.Expr) {
				t.Errorf("%s: %s", r.Alert, f)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
				t.Errorf("%s needs a severity, a summary and an action", r.Alert)
			}
		}
	}
	t.Logf("%d alerts", n)
}

// dashboard is what the tests read of a dashboard of Grafana.
type dashboard struct {
	Panels []struct {
		Title, Type, Description string
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ Expr, LegendFormat string }
	}
}

// legend matches the label that a legend shows.
var legend = regexp.MustCompile(`{{(\w+)}}`)

func TestT_44_Dashboard(t *testing.T) {
	b, err := os.ReadFile("../../deploy/grafana/team-server.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	all, used, panels := exposed(t), map[string]bool{}, 0
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("panel %q lies on %q or beyond the border", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		panels++
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q needs a description and a query", p.Title)
		}
		for _, target := range p.Targets {
			query := strings.NewReplacer("$__rate_interval", "5m", "$job", "team-server").Replace(target.Expr)
			for _, f := range faults(all, query) {
				t.Errorf("panel %q: %s", p.Title, f)
			}
			for name := range all {
				if strings.Contains(target.Expr, name+"{") {
					used[name] = true
				}
			}
			for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(target.Expr, m[1]) && !slices.Contains(scraped, m[1]) {
					t.Errorf("panel %q: the legend shows %s, which the query does not keep", p.Title, m[1])
				}
			}
		}
	}
	for name := range all {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if name != "up" && !used[name] && !used[base+"_bucket"] {
			t.Errorf("no panel shows %s", name)
		}
	}
	t.Logf("%d panels", panels)
}

// TestT_44_QueriesAreChecked: the checks above find each kind of fault.
func TestT_44_QueriesAreChecked(t *testing.T) {
	all := exposed(t)
	for query, want := range map[string]string{
		`sum(rate(team_server_requests_total[5m])`:                           "unclosed left parenthesis",
		`sum(rate(team_server_request_total[5m]))`:                           "no metric team_server_request_total",
		`sum(rate(team_server_requests_total{agent="a"}[5m]))`:               "has no label agent",
		`sum by (agent) (rate(team_server_requests_total[5m]))`:              "no label agent to group by",
		`sum(team_server_requests_total)`:                                    "is a counter",
		`rate(team_server_runs_active[5m])`:                                  "is a gauge",
		`sum by (code, job) (rate(team_server_requests_total{job="x"}[5m]))`: "",
	} {
		got := strings.Join(faults(all, query), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
