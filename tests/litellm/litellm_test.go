// Package litellm compares what team-server says that calls of models have cost with what LiteLLM says: for
// recorded usages, and for calls through its proxy. The proxy is not part of the other tests: make night-accountant
// installs it and runs these tests with it.
package litellm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/child"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/model"
	"github.com/agentteams/team-server/tests/rig"
	"github.com/agentteams/team-server/tests/rig/whole"
)

func TestMain(m *testing.M) { rig.VerifyMain(m) }

var update = flag.Bool("update", false, "write testdata/sample.json anew")

// pythonVariable names the Python that has the packages of requirements.txt.
const pythonVariable = "TEAM_LITELLM"

// patience bounds the start of the proxy, and each wait for what it writes.
const patience = 2 * time.Minute

// recorded is what LiteLLM computes with the prices of its own map.
type recorded struct {
	LiteLLM string        `json:"litellm"` // version
	Models  []pricedModel `json:"models"`
}

// pricedModel is a model with its prices, and the costs of usages.
type pricedModel struct {
	Provider    string             `json:"provider"`
	Model       string             `json:"model"`
	USDPerToken map[string]float64 `json:"usd_per_token"` // by the names that the configuration file has
	Samples     []struct {
		Usage struct {
			Input       int64 `json:"input"`
			CachedInput int64 `json:"cached_input"`
			CacheWrite  int64 `json:"cache_write"`
			Output      int64 `json:"output"`
			Reasoning   int64 `json:"reasoning"`
		} `json:"usage"`
		CostUSD float64 `json:"cost_usd"`
	} `json:"samples"`
}

// price returns the prices of a model, as its configuration states them.
func (m *pricedModel) price() model.Price {
	million := func(name string) *float64 {
		usd, ok := m.USDPerToken[name]
		if !ok {
			return nil
		}
		usd = math.Round(usd*1e12) / 1e6
		return &usd
	}
	return model.Price{
		Input: *million("input"), Output: *million("output"), CachedInput: million("cached_input"), CacheWrite: million("cache_write"), Reasoning: million("reasoning"),
	}
}

// yaml returns the prices as in a configuration file.
func (m *pricedModel) yaml() string {
	p := m.price()
	list := []string{fmt.Sprintf("input: %v", p.Input), fmt.Sprintf("output: %v", p.Output)}
	for name, usd := range map[string]*float64{"cached_input": p.CachedInput, "cache_write": p.CacheWrite, "reasoning": p.Reasoning} {
		if usd != nil {
			list = append(list, fmt.Sprintf("%s: %v", name, *usd))
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// readSample returns testdata/sample.json.
func readSample(t *testing.T) *recorded {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "sample.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := &recorded{}
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestS_60_CostsOfLiteLLM: for the same usage and the same prices, a turn costs what LiteLLM computes, rounded to
// a millionth of a USD, with tokens that were read from a cache, written to it and used for reasoning.
func TestS_60_CostsOfLiteLLM(t *testing.T) {
	all, kinds := readSample(t), map[string]int{}
	for _, m := range all.Models {
		for _, s := range m.Samples {
			u := agent.Usage{Input: s.Usage.Input, CachedInput: s.Usage.CachedInput, CacheWrite: s.Usage.CacheWrite, Output: s.Usage.Output, Reasoning: s.Usage.Reasoning}
			price := m.price().Micros()
			got, want := price.Spent(u).GetCostMicros(), s.CostUSD*1e6
			if math.Abs(float64(got)-want) > 0.5+1e-6 {
				t.Errorf("S-60 %s with %+v costs %d micros, and %v with LiteLLM %s", m.Model, u, got, want, all.LiteLLM)
			}
			if most := price.Ceil(u.Input, u.Output); float64(most) < want {
				t.Errorf("S-60 %s with %+v: %d micros are reserved, and LiteLLM %s bills %v", m.Model, u, most, all.LiteLLM, want)
			}
			for kind, n := range map[string]int64{"cached input": u.CachedInput, "cache write": u.CacheWrite, "reasoning": u.Reasoning} {
				if n > 0 {
					kinds[kind]++
				}
			}
		}
	}
	if len(all.Models) < 7 || kinds["cached input"] < 20 || kinds["cache write"] < 6 || kinds["reasoning"] < 14 || all.LiteLLM == "" {
		t.Errorf("the sample has %d models and %v, of LiteLLM %q", len(all.Models), kinds, all.LiteLLM)
	}
}

// TestS_60_SampleOfLiteLLM: the sample is what the pinned version of LiteLLM computes. With -update it is written.
func TestS_60_SampleOfLiteLLM(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), python(t), "sample.py")
	cmd.Env = local()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sample.py: %v\n%s", err, errs.Bytes())
	}
	file := filepath.Join("testdata", "sample.json")
	if *update {
		if err := os.WriteFile(file, out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, out) {
		t.Errorf("%s is not what LiteLLM computes (%v): make night-accountant UPDATE=1 writes it", file, err)
	}
	pinned, err := os.ReadFile("requirements.in")
	if want := strings.TrimSpace(strings.TrimPrefix(string(pinned), "litellm[proxy]==")); err != nil || readSample(t).LiteLLM != want {
		t.Errorf("the sample is of LiteLLM %s, and %s is pinned: %v", readSample(t).LiteLLM, want, err)
	}
}

// python returns the Python with LiteLLM. Without one it skips the test.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv(pythonVariable)
	if path == "" {
		t.Skip("make night-accountant runs this with LiteLLM")
	}
	return path
}

// local returns the environment of programs that ask no other server.
func local(more ...string) []string {
	return append(append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_MODE=PRODUCTION", "NO_PROXY=*", "LITELLM_TELEMETRY=False"), more...)
}

// proxy is a running LiteLLM.
type proxy struct {
	url   string
	costs string // file of CostLog
}

// startProxy starts LiteLLM in front of a provider, with the models of the sample that the provider's two wire
// formats have.
func startProxy(t *testing.T, llm *fakellm.Server, models []pricedModel) *proxy {
	t.Helper()
	dir := t.TempDir()
	callback, err := filepath.Abs("callback.py")
	if err == nil {
		var b []byte
		if b, err = os.ReadFile(callback); err == nil { // LiteLLM looks for it beside its configuration
			err = os.WriteFile(filepath.Join(dir, "callback.py"), b, 0o600)
		}
	}
	text := "litellm_settings: {callbacks: callback.costs, telemetry: false, num_retries: 0}\nrouter_settings: {disable_cooldowns: true}\nmodel_list:\n"
	for _, m := range models {
		base := map[string]string{"openai": llm.URL, "anthropic": llm.Root}[m.Provider]
		text += fmt.Sprintf("- {model_name: %s, litellm_params: {model: %s/%s, api_base: %q, api_key: k}}\n", m.Model, m.Provider, m.Model, base)
	}
	config := filepath.Join(dir, "config.yaml")
	if err == nil {
		err = os.WriteFile(config, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{costs: filepath.Join(dir, "costs.jsonl")}
	port := child.FreePort(t)
	p.url = "http://127.0.0.1:" + port
	cmd := exec.Command(filepath.Join(filepath.Dir(python(t)), "litellm"), "--config", config, "--host", "127.0.0.1", "--port", port, "--telemetry", "False") //nolint:noctx // it ends with the test
	cmd.Dir, cmd.Env = dir, local("COST_LOG="+p.costs)
	child.Serving(t, cmd, p.url+"/health/liveliness", patience)
	return p
}

// billed waits until n calls are in the log of costs, and returns what each has cost, in millionths of a USD.
func (p *proxy) billed(t *testing.T, n int) []float64 {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); ; {
		b, err := os.ReadFile(p.costs)
		if lines := strings.Split(strings.TrimSpace(string(b)), "\n"); err == nil && len(lines) >= n && strings.HasSuffix(string(b), "\n") {
			list := make([]float64, len(lines))
			for i, line := range lines {
				var call struct{ Cost *float64 }
				if err := json.Unmarshal([]byte(line), &call); err != nil || call.Cost == nil {
					t.Fatalf("LiteLLM has written %q: %v", line, err)
				}
				list[i] = *call.Cost * 1e6
			}
			return list
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("LiteLLM has written the costs of less than %d calls in %v:\n%s", n, patience, b)
		}
	}
}

// TestS_60_ThroughLiteLLM has agents call their models through LiteLLM, over both wire formats: what each
// task has spent is what LiteLLM says that its call has cost, for the usage that the provider has reported. Every
// third call is refused at first, which costs nothing.
func TestS_60_ThroughLiteLLM(t *testing.T) {
	python(t)
	var models []pricedModel
	for _, m := range readSample(t).Models {
		if m.Provider != "gemini" {
			models = append(models, m)
		}
	}
	llm := fakellm.New(t)
	p := startProxy(t, llm, models)
	file := "version: v1\nmodels:\n"
	agents := "agents:\n"
	for i, m := range models {
		base := map[string]string{"openai": p.url + "/v1", "anthropic": p.url}[m.Provider]
		file += fmt.Sprintf("  m%d: {provider: %s, name: %s, base_url: %q, api_key: sk-none, max_output_tokens: 20000, price: %s}\n", i, m.Provider, m.Model, base, m.yaml())
		agents += fmt.Sprintf("  a%d: {description: Answers., model: m%d, limits: {max_cost: 100, retry: {attempts: 3, backoff: 1ms}}}\n", i, i)
	}
	s := whole.Open(t, rig.Memory(t), file+agents, llm)
	calls := 0
	for i, m := range models {
		for n, sample := range m.Samples {
			t.Run("S-60 "+m.Model+" "+strconv.Itoa(n+1), func(t *testing.T) {
				u := sample.Usage
				if m.Provider == "anthropic" {
					u.Reasoning = 0 // its messages do not report it
				}
				words := strings.Repeat("word ", 20)
				if n%3 == 2 {
					llm.Script(m.Model, fakellm.Turn{Status: []int{429, 503}[i%2]})
				}
				llm.Script(m.Model, fakellm.Turn{Text: words, Chunks: 4, Usage: &fakellm.Usage{
					PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Input + u.Output,
					Details: &fakellm.PromptDetails{CachedTokens: u.CachedInput, CacheWriteTokens: u.CacheWrite},
					Output:  &fakellm.OutputDetails{ReasoningTokens: u.Reasoning},
				}})
				text := strings.Repeat("Count these words. ", int(u.Input)/15+1) // a token covers at least one byte of it
				resp, err := rig.NewREST(s.Target).Send(t.Context(), rig.Text(fmt.Sprint("a", i), fmt.Sprint(i, "-", n), text))
				if err != nil {
					t.Fatal(err)
				}
				calls++
				task := resp.GetTask()
				if state := task.GetStatus().GetState(); state != a2av1.TaskState_TASK_STATE_COMPLETED {
					t.Fatalf("%s: %s", state, agent.Text(task.GetStatus().GetMessage()))
				}
				spent := a2a.RunOf(task.GetMetadata()).GetSpent()
				theirs := p.billed(t, calls)[calls-1]
				t.Logf("%-18s in %6d (cached %6d, written %5d)  out %5d  ours %8d micros  LiteLLM %.3f", m.Model, spent.GetInputTokens(), spent.GetCachedInputTokens(), spent.GetCacheWriteTokens(), spent.GetOutputTokens(), spent.GetCostMicros(), theirs)
				if spent.GetEstimated() || math.Abs(float64(spent.GetCostMicros())-theirs) > 0.5+1e-6 {
					t.Errorf("spent %v, and LiteLLM says %v micros", spent, theirs)
				}
				if spent.GetInputTokens() != u.Input || spent.GetOutputTokens() != u.Output || spent.GetCachedInputTokens() != u.CachedInput {
					t.Errorf("spent %v, and the provider has reported %+v", spent, u)
				}
			})
		}
	}
}
