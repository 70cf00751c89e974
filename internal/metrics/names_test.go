package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/metrics"
	"github.com/agentteams/team-server/internal/metrics/scrape"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list is a journal in memory.
type list struct {
	runs.Journal
	events []*teamv1.Event
}

func (l *list) Load(context.Context) ([]*teamv1.Event, error) { return l.events, nil }
func (l *list) Append(_ context.Context, e ...*teamv1.Event) error {
	l.events = append(l.events, e...)
	return nil
}
func (*list) Commit(context.Context) error { return nil }

// run returns the events of a run with a step that is tried twice, a question that expires, and the limit of a
// budget.
func run() []*teamv1.Event {
	limit := &teamv1.Error{Details: map[string]string{agent.DetailLimit: "max_cost"}}
	return []*teamv1.Event{
		{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
		{Scope: "1", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1, Model: "m"}}},
		{Scope: "1", Kind: &teamv1.Event_Retried{Retried: &teamv1.Retried{Spent: &teamv1.Spent{InputTokens: 2, OutputTokens: 3, CostMicros: 4, ModelCalls: 1}}}},
		{Scope: "1", Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 2, Model: "m"}}},
		{Scope: "1", Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: limit, Spent: &teamv1.Spent{InputTokens: 7, OutputTokens: 3, CostMicros: 9, ModelCalls: 2}}}},
		{Kind: &teamv1.Event_Asked{Asked: &teamv1.Asked{}}},
		{Kind: &teamv1.Event_Expired{Expired: &teamv1.Expired{Limit: agent.LimitQuestion}}},
		{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_FAILED, Error: limit, Spent: &teamv1.Spent{InputTokens: 7, OutputTokens: 3, CostMicros: 9, ModelCalls: 2, ToolCalls: 1}}}},
	}
}

// measure uses all instruments, and returns what is scraped then.
func measure(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scrape.New(l, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.Reader()))
	m := provider.Meter("test")
	ok := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	calls, err := metrics.NewCalls(m)
	ok(err)
	calls.Ended(ctx, "SendMessage", "grpc", "OK", time.Second)
	calls.Streams(ctx, "SubscribeToTask", "rest", 1)
	calls.SignInRefused(ctx, "unknown key")
	calls.LimitHit(ctx, "max_calls")
	stored, err := metrics.NewStore(m)
	ok(err)
	stored.Group(ctx, 3)
	stored.TookOver(ctx, 1)
	measured, err := metrics.NewRuns(m, nil, stored)
	ok(err)
	accepted := &teamv1.Event{Agent: "desk", Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Agent: "desk"}}}
	_, err = measured.Driving(func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		if _, err := c.Journal.Load(ctx); err != nil {
			return runs.Park{}, err
		}
		for _, ev := range run() {
			if err := c.Journal.Append(ctx, ev); err != nil {
				return runs.Park{}, err
			}
		}
		return runs.Park{Done: true}, c.Journal.Commit(ctx)
	})(ctx, runs.Claim{Owner: "acme/ann", Journal: &list{events: []*teamv1.Event{accepted}}})
	ok(err)
	pushes, err := metrics.NewPushes(m)
	ok(err)
	pushes.Delivered(ctx)
	pushes.Failed(ctx, "connection failed")
	pushes.Dropped(ctx)
	reloads, err := metrics.NewReloads(m, time.Now())
	ok(err)
	reloads.Ended(ctx, metrics.ReloadApplied)
	ok(metrics.ObserveBuild(m, "v1"))
	unobserve, err := metrics.ObserveBacklog(m, func(context.Context) (engine.Backlog, error) { return engine.Backlog{}, nil }, nil, time.Now, func(err error) { t.Error(err) })
	ok(err)
	defer unobserve()
	unobserve, err = metrics.ObserveAccounts(m, func(context.Context) (map[string]float64, error) {
		return map[string]float64{"max_cost_per_day": .5}, nil
	}, func(err error) { t.Error(err) })
	ok(err)
	defer unobserve()
	unobserve, err = metrics.ObserveMemory(m, func() (held, refused map[string]int64) {
		return map[string]int64{"run": 7}, map[string]int64{"run": 1}
	})
	ok(err)
	defer unobserve()
	return read(t, s.Addr())
}

func read(t *testing.T, address string) map[string]*dto.MetricFamily {
	t.Helper()
	code, body := get(t, address, address)
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	all, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// get reads the metrics at an address, with a Host header.
func get(t *testing.T, address, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+scrape.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// row matches a row of the table of metrics: its name, type and labels.
var row = regexp.MustCompile("(?m)^\\| `(team_server_[a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")

// TestT_44_Documented: docs/metrics.md lists all metrics, with their types and labels, and no others.
func TestT_44_Documented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		listed[m[1]] = m[2] + " " + strings.NewReplacer("`", "", ",", "").Replace(strings.TrimSpace(m[3]))
	}
	found := map[string]string{}
	for name, f := range measure(t) {
		if !strings.HasPrefix(name, "team_server_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		found[name] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, " ")
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
	}
	if diff := cmp.Diff(found, listed); diff != "" {
		t.Errorf("docs/metrics.md (-exposed +listed):\n%s", diff)
	}
}

// TestT_44_Spent: what the attempts of a step and the end of its run have spent is counted once.
func TestT_44_Spent(t *testing.T) {
	f := measure(t)
	sum := func(name, label string) (sum float64) {
		for _, m := range f[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	if in, out, calls := sum("team_server_tokens_total", "input"), sum("team_server_tokens_total", "output"), sum("team_server_model_calls_total", "m"); in != 7 || out != 3 || calls != 2 {
		t.Errorf("%v input tokens, %v output tokens, %v calls; want 7, 3 and 2", in, out, calls)
	}
	if n := sum("team_server_model_failures_total", "m"); n != 2 {
		t.Errorf("%v failures of the model, want 2: that of the first attempt, and that of the step", n)
	}
	if n := f["team_server_tool_calls_total"].GetMetric()[0].GetCounter().GetValue(); n != 1 {
		t.Errorf("%v calls of tools, want 1", n)
	}
}

// TestT_45_Host: a page cannot read the metrics through a name that leads to loopback.
func TestT_45_Host(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scrape.New(l, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	for host, want := range map[string]int{"rebound.example": 403, "rebound.example:9464": 403, "localhost": 200, "127.0.0.1:1": 200, "[::1]:9464": 200} {
		if code, _ := get(t, s.Addr(), host); code != want {
			t.Errorf("%s: %d, want %d", host, code, want)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestT_44_FromTheStart: what alerts look for is exposed before it happens, with the value 0, for each value of its labels
// that docs/metrics.md names.
func TestT_44_FromTheStart(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	stored, err := metrics.NewStore(m)
	if err != nil {
		t.Fatal(err)
	}
	_, calls := metrics.NewCalls(m)
	_, runs := metrics.NewRuns(m, nil, stored)
	_, pushes := metrics.NewPushes(m)
	reloads, err := metrics.NewReloads(m, time.Unix(7, 0))
	if err := errors.Join(calls, runs, pushes, err); err != nil {
		t.Fatal(err)
	}
	value := func(name, label string) (values []string, sum int64) {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, one := range all.ScopeMetrics[0].Metrics {
			if one.Name != name {
				continue
			}
			var points []metricdata.DataPoint[int64]
			switch data := one.Data.(type) {
			case metricdata.Sum[int64]:
				points = data.DataPoints
			case metricdata.Gauge[int64]:
				points = data.DataPoints
			}
			for _, p := range points {
				v, _ := p.Attributes.Value(attribute.Key(label))
				values, sum = append(values, v.AsString()), sum+p.Value
			}
		}
		slices.Sort(values)
		return values, sum
	}
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := func(row string) []string {
		t.Helper()
		_, rest, found := strings.Cut(string(doc), "\n| "+row+" | ")
		if !found {
			t.Fatalf("docs/metrics.md has no row %s", row)
		}
		line, _, _ := strings.Cut(rest, "\n")
		var values []string
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(line, -1) {
			values = append(values, m[1])
		}
		slices.Sort(values)
		return values
	}
	for _, c := range []struct {
		name, label string
		want        []string
	}{
		{"team_server.config.reloads", "result", documented("`result`")},
		{"team_server.sign_ins.refused", "reason", documented("`reason` of refused sign-ins")},
		{"team_server.questions", "event", documented("`event`")},
		{"team_server.lease.takeovers", "", []string{""}},
		{"team_server.attempts", "", []string{""}},
		{"team_server.push.dropped", "", []string{""}},
	} {
		if got, sum := value(c.name, c.label); !slices.Equal(got, c.want) || sum != 0 {
			t.Errorf("%s: %s %v with the sum %d, want %v and 0", c.name, c.label, got, sum, c.want)
		}
	}
	for name, want := range map[string][]string{
		"team_server.limits.hit":  {"max_calls", "max_queued", "requests_per_second", "per_principal.max_queued", "streams.per_caller", metrics.Other},
		"team_server.budgets.hit": {"max_cost", "max_tokens", "max_steps", "max_tokens_per_day", metrics.Other},
	} {
		got, sum := value(name, "limit")
		for _, limit := range want {
			if !slices.Contains(got, limit) || sum != 0 {
				t.Errorf("%s: no %s among %v, or its sum %d is not 0", name, limit, got, sum)
			}
		}
		if slices.Contains(got, "weight") || slices.Contains(got, "timeout") {
			t.Errorf("%s has series for what is no limit: %v", name, got)
		}
	}
	for _, result := range []string{"", metrics.ReloadRefused, metrics.ReloadUnchanged, metrics.ReloadRefused, metrics.ReloadApplied} {
		want := int64(1)
		if result != "" {
			reloads.Ended(t.Context(), result)
		}
		if result == metrics.ReloadRefused {
			want = 0
		}
		if _, got := value("team_server.config.last_reload.successful", ""); got != want {
			t.Errorf("after the result %q: successful is %d, want %d", result, got, want)
		}
	}
}

// TestT_44_ManyAgents: the runs of 100,000 agents leave the number of series as it was with the first hundred. All of their
// ends are counted.
func TestT_44_ManyAgents(t *testing.T) {
	const named, all, made = 100, 100_000, 1000
	reader := sdkmetric.NewManualReader()
	m := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter)).Meter("test")
	measured, err := metrics.NewRuns(m, func(id string) bool { return strings.HasPrefix(id, "a") }, nil)
	if err != nil {
		t.Fatal(err)
	}
	events := []*teamv1.Event{
		{Kind: &teamv1.Event_Started{Started: &teamv1.Started{Attempt: 1}}},
		{Kind: &teamv1.Event_Ended{Ended: &teamv1.Ended{Outcome: teamv1.Outcome_OUTCOME_SUCCEEDED, Spent: &teamv1.Spent{}}}},
	}
	drive := measured.Driving(func(ctx context.Context, c runs.Claim) (runs.Park, error) {
		if _, err := c.Journal.Load(ctx); err != nil {
			return runs.Park{}, err
		}
		return runs.Park{Done: true}, c.Journal.Append(ctx, events...)
	})
	work := func(id string) {
		t.Helper()
		accepted := &teamv1.Event{Agent: id, Kind: &teamv1.Event_Accepted{Accepted: &teamv1.Accepted{Agent: id}}}
		if _, err := drive(t.Context(), runs.Claim{Owner: "acme/ann", Journal: &list{events: []*teamv1.Event{accepted}}}); err != nil {
			t.Fatal(err)
		}
	}
	// read returns the number of series, and the ends of the runs by agent.
	read := func() (series int, ended map[string]int64) {
		t.Helper()
		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		ended = map[string]int64{}
		for _, one := range got.ScopeMetrics[0].Metrics {
			switch data := one.Data.(type) {
			case metricdata.Sum[int64]:
				series += len(data.DataPoints)
				for _, p := range data.DataPoints {
					if v, ok := p.Attributes.Value("agent"); ok && one.Name == "team_server.runs.ended" {
						ended[v.AsString()] += p.Value
					}
				}
			case metricdata.Histogram[float64]:
				series += len(data.DataPoints)
			case metricdata.Sum[float64]:
				series += len(data.DataPoints)
			}
		}
		return series, ended
	}
	work("made-0")
	for i := range named {
		work(fmt.Sprint("a", i))
	}
	before, _ := read()
	for i := named; i < all; i++ {
		work(fmt.Sprint("a", i))
	}
	for i := 1; i < made; i++ {
		work(fmt.Sprint("made-", i))
	}
	after, ended := read()
	if before != after || before < 2*named {
		t.Errorf("%d series with %d agents, %d with %d", before, named, after, all)
	}
	if ended["a7"] != 1 || ended[metrics.Other] != all-named+made || len(ended) != named+1 {
		t.Errorf("%d agents have ends; a7 has %d, others %d", len(ended), ended["a7"], ended[metrics.Other])
	}
	t.Logf("%d series with %d agents, %d with %d", before, named, after, all)
}
