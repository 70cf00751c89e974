package tests

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/internal/testkit/sample"
	"github.com/agentteams/team-server/pkg/a2a"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

// window is the number of input tokens above which the fake providers refuse a request.
const window = 200_000

// tokensOf is the number of tokens that a provider bills for a file, by its published rules, at the
// model that bills most.
func tokensOf(provider string, f fakellm.File) int64 {
	switch {
	case f.Type == "application/pdf":
		return int64(bytes.Count(f.Data, []byte("/Type /Page "))) * 7784 // text of 3000 tokens, and an image
	case strings.HasPrefix(f.Type, "audio/"):
		return int64(len(f.Data)) * 32 / 1000 // 8 kbit/s
	}
	c, err := png.DecodeConfig(bytes.NewReader(f.Data))
	if err != nil {
		return math.MaxInt32
	}
	w, h := float64(c.Width), float64(c.Height)
	shrink := func(by float64) { w, h = max(1, w*min(by, 1)), max(1, h*min(by, 1)) }
	switch provider {
	case "openai":
		shrink(2048 / max(w, h))
		shrink(768 / min(w, h))
		return 2833 + 5667*int64(math.Ceil(w/512)*math.Ceil(h/512))
	case "anthropic":
		return min(int64(math.Ceil(w*h/750)), 4784)
	}
	shrink(3072 / max(w, h))
	unit := min(max(min(w, h)/1.5, 256), 768)
	return 258 * int64(math.Ceil(w/unit)*math.Ceil(h/unit))
}

// anyFile is a random file, and its name.
func anyFile(t *testing.T, r *rand.Rand) *a2av1.Part {
	t.Helper()
	switch r.IntN(4) {
	case 0:
		return rawFile("a.pdf", "application/pdf", bytes.Repeat(document("x"), 1+r.IntN(8)))
	case 1:
		return rawFile("a.csv", "text/csv", bytes.Repeat([]byte("ü;"), r.IntN(2000)+1))
	}
	img := image.NewPaletted(image.Rect(0, 0, 1+r.IntN(1<<r.IntN(12)), 1+r.IntN(1<<r.IntN(12))), color.Palette{color.Black, color.White})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return rawFile("a.png", "image/png", b.Bytes())
}

// TestFiles_C_07_Bound has fake providers bill random files by the rules of the real ones: the bill
// is never above what was reserved, so the runs complete, and an attempt whose cost is not reported is
// booked at no less than its bill.
func TestFiles_C_07_Bound(t *testing.T) {
	t.Parallel()
	for _, provider := range wires {
		t.Run(provider, func(t *testing.T) {
			s := playFiles(t, rig.Memory(t), provider, `version: v1
models:
  see: {provider: PROVIDER, name: see, base_url: URL, api_key: none, accepts: ["*/*"], context_window: 200000, price: {input: 3, output: 15}}
  blind: {provider: PROVIDER, name: blind, base_url: URL, api_key: none}
agents:
  see: {description: Looks., model: see, limits: {max_tokens: 600000, max_cost: 5, retry: {attempts: 1}}}
`)
			silent, bill := false, int64(0)
			s.llm.Answer("see", func(r *fakellm.Request) fakellm.Turn {
				in := int64(len(r.System))
				for _, m := range r.Messages {
					in += 8 + int64(len(m.Text))
					for _, f := range m.Files {
						in += tokensOf(provider, f)
					}
				}
				if in > window {
					return fakellm.Turn{Status: 400, Message: "prompt is too long"}
				}
				bill = in
				return fakellm.Turn{Text: "seen", Usage: &fakellm.Usage{PromptTokens: in, CompletionTokens: 9, TotalTokens: in + 9}, NoUsage: silent}
			})
			for seed := range 125 / sample.Stride() {
				r := rand.New(rand.NewPCG(uint64(seed), 7))
				var files []*a2av1.Part
				for range 1 + r.IntN(3) {
					files = append(files, anyFile(t, r))
				}
				silent = r.IntN(2) == 0
				bill = 0
				resp, err := s.client(t, true).Send(t.Context(), s.with("see", strings.Repeat("Look! ", r.IntN(50)+1), files...))
				if err != nil {
					t.Fatal(err)
				}
				run := a2a.RunOf(resp.GetTask().GetMetadata())
				switch state := resp.GetTask().GetStatus().GetState(); {
				case bill == 0: // too long for the provider
				case state != a2av1.TaskState_TASK_STATE_COMPLETED:
					t.Errorf("seed %d: %s", seed, agent.Text(resp.GetTask().GetStatus().GetMessage()))
				case run.GetSpent().GetInputTokens() < bill || !silent && run.GetSpent().GetInputTokens() != bill || run.GetSpent().GetEstimated() != silent:
					t.Errorf("seed %d: spent %v, the bill is %d", seed, run.GetSpent(), bill)
				}
			}
		})
	}
}

// TestFiles_C_07_Refused has a budget that does not cover what a document may cost: the model is not
// called.
func TestFiles_C_07_Refused(t *testing.T) {
	t.Parallel()
	llm := fakellm.New(t)
	llm.Script("see", fakellm.Turn{Text: "seen", Forever: true})
	s := playAgents(t, rig.Memory(t), llm, defined(t, fmt.Sprintf(`version: v1
models: {see: {provider: anthropic, name: see, base_url: %q, api_key: none}}
agents: {poor: {description: Looks., model: see, limits: {max_tokens: 20000}}}
`, llm.Root), nil))
	for _, c := range []struct {
		file *a2av1.Part
		want a2av1.TaskState
	}{
		{rawFile("a.pdf", "application/pdf", document("x")), a2av1.TaskState_TASK_STATE_FAILED},
		{link("application/pdf", "https://example.com/a.pdf"), a2av1.TaskState_TASK_STATE_FAILED},
		{rawFile("a.png", "image/png", picture(t)), a2av1.TaskState_TASK_STATE_COMPLETED},
		{link("image/png", "https://example.com/a.png"), a2av1.TaskState_TASK_STATE_COMPLETED},
	} {
		before := len(llm.Requests())
		resp, err := s.client(t, true).Send(t.Context(), s.with("poor", "Look!", c.file))
		if err != nil {
			t.Fatal(err)
		}
		task := resp.GetTask()
		failed := task.GetStatus().GetState() == a2av1.TaskState_TASK_STATE_FAILED
		if task.GetStatus().GetState() != c.want || failed && (a2a.RunOf(task.GetMetadata()).GetError().GetReason() != agent.ReasonBudgetExceeded || len(llm.Requests()) != before) {
			t.Errorf("%v: %s", c.file.GetContent(), task.GetStatus())
		}
	}
}
