package prometheus_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
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

// groups returns the alerts.
func groups(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	all, errs := rulefmt.ParseFile("../../deploy/prometheus/alerts.yaml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return all
}

func TestT_44_Alerts(t *testing.T) {
	all, n := exposed(t), 0
	for _, g := range groups(t).Groups {
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

// TestT_44_AlertsFire: alerts fire at the first event since the server has started, as long as their cause lasts. The
// series are those that a server exposes from its start, read every 15 seconds.
func TestT_44_AlertsFire(t *testing.T) {
	for alert, cases := range map[string]map[string][]int{ // the minutes at which it fires, of the first 60, in steps of 5
		"TeamServerReplicaLost": {
			`team_server_lease_takeovers_total{instance="a"} 0x240`:               nil,
			`team_server_lease_takeovers_total{instance="a"} 0x80 1x160`:          {25},
			`team_server_lease_takeovers_total{instance="a"} 0x80 7x79 0x80`:      {25}, // and then a restart
			`team_server_lease_takeovers_total{instance="a"} _x80 0x39 2x120`:     {30, 35},
			`team_server_lease_takeovers_total{instance="a"} 5x80 5x40 7x39 7x80`: {35, 40},
		},
		"TeamServerWebhooksFail": {
			`team_server_push_oldest_age_seconds{instance="a"} 0x240`:             nil,
			`team_server_push_oldest_age_seconds{instance="a"} 0x80 0+15x99 0x60`: {35, 40, 45}, // one that is tried again, from 20 minutes on
		},
		"TeamServerNotificationsDropped": {
			`team_server_push_dropped_total{instance="a"} 0x240`:       nil,
			`team_server_push_dropped_total{instance="a"} 0x100 1x140`: {30},
		},
		"TeamServerConfigurationRefused": {
			`team_server_config_last_reload_successful{instance="a"} 1x240`:           nil,
			`team_server_config_last_reload_successful{instance="a"} 1x99 0x79 1x60`:  {25, 30, 35, 40},
			`team_server_config_last_reload_successful{instance="a"} _x80 1x19 0x140`: {25, 30, 35, 40, 45, 50, 55, 60},
		},
		"TeamServerKeysGuessed": {
			`team_server_sign_ins_refused_total{reason="unknown_key"} 0x100 0+60x138`: {30, 35, 40, 45, 50, 55, 60},
			`team_server_sign_ins_refused_total{reason="no_credentials"} 0+60x240`:    nil,
		},
		"TeamServerBudgetsHit": {
			`team_server_budgets_hit_total{limit="max_cost",level="run"} 0x100 11x140`: {30, 35, 40, 45, 50, 55, 60},
			`team_server_budgets_hit_total{limit="max_cost",level="run"} 0x100 8x140`:  nil,
		},
	} {
		rule := ruleOf(t, alert)
		for series, want := range cases {
			if got := fires(t, rule.Expr, series); !slices.Equal(got, want) {
				t.Errorf("%s: %s: fires after %v minutes, want %v", alert, series, got, want)
			}
		}
	}
}

// ruleOf returns the rule of an alert.
func ruleOf(t *testing.T, alert string) rulefmt.Rule {
	t.Helper()
	for _, g := range groups(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == alert {
				return r
			}
		}
	}
	t.Fatalf("there is no alert %s", alert)
	return rulefmt.Rule{}
}

// fires returns the minutes at which the condition of an alert holds, of the first 60, in steps of 5. series is one in the
// notation of tests of Prometheus, with a sample every 15 seconds.
func fires(t *testing.T, expr, series string) (minutes []int) {
	t.Helper()
	stored := promqltest.LoadedStorage(t, "load 15s\n  "+series+"\n")
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	for m := 5; m <= 60; m += 5 {
		q, err := engine.NewInstantQuery(t.Context(), stored, nil, expr, time.Unix(int64(m)*60, 0))
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatal(err)
		}
		if len(vector) > 0 {
			minutes = append(minutes, m)
		}
		q.Close()
	}
	return minutes
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
