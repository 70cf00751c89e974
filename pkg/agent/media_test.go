package agent_test

import (
	"slices"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
)

func rawFile(media string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: []byte("abcd")}, MediaType: media}
}

func urlFile(media string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Url{Url: "https://x.example/a"}, MediaType: media}
}

func TestCommonMedia(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"*/*", "text/*, image/png", "text/*, image/png"},
		{"image/*", "text/*, image/png, image/gif", "image/png, image/gif"},
		{"image/png, text/csv", "image/*, text/*", "image/png, text/csv"},
		{"image/*", "*/*", "image/*"},
		{"IMAGE/PNG; q=1, audio/*", "audio/*", "audio/*"},
		{"video/mp4", "image/*", ""},
	} {
		if got := strings.Join(agent.CommonMedia(strings.Split(c.a, ", "), strings.Split(c.b, ", ")), ", "); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

// TestAcceptsFile_A_04 has agents with input modes of their own and with those of a model.
func TestAcceptsFile_A_04(t *testing.T) {
	own := []string{"text/plain", "image/*"}
	for _, c := range []struct {
		name       string
		info       *teamv1.AgentInfo
		takes, not []*a2av1.Part
		modes      []string
		says       string // of the first that is not accepted
	}{
		{"all", &teamv1.AgentInfo{}, []*a2av1.Part{rawFile(""), urlFile("image/png")}, nil, nil, ""},
		{"its own", &teamv1.AgentInfo{Id: "a", InputModes: own}, []*a2av1.Part{rawFile("image/png"), urlFile("image/png")}, []*a2av1.Part{rawFile("text/csv")}, own, `is text/csv; agent "a" accepts text/plain, image/*`},
		{
			"those of its model", &teamv1.AgentInfo{Id: "a", FileModes: []string{"text/*", "image/png"}, UrlModes: []string{"image/png"}},
			[]*a2av1.Part{rawFile("text/csv"), rawFile("image/png"), urlFile("image/png")}, []*a2av1.Part{urlFile("text/csv"), rawFile("image/gif"), rawFile("")},
			[]string{"text/plain", "application/json", "text/*", "image/png"}, `is the URL of a file of type text/csv; agent "a" accepts by URL only image/png; send its bytes`,
		},
		{
			"both", &teamv1.AgentInfo{Id: "a", InputModes: own, FileModes: []string{"image/png"}}, []*a2av1.Part{rawFile("image/png")},
			[]*a2av1.Part{urlFile("image/png"), rawFile("image/gif"), rawFile("text/plain")}, []string{"text/plain", "image/png"},
			`is the URL of a file of type image/png; agent "a" accepts no files by URL; send its bytes`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range c.takes {
				if !agent.AcceptsFile(c.info, p) {
					t.Errorf("%v is not accepted", p)
				}
			}
			for _, p := range c.not {
				if agent.AcceptsFile(c.info, p) {
					t.Errorf("%v is accepted", p)
				}
			}
			if got := agent.InputModes(c.info); !slices.Equal(got, c.modes) {
				t.Errorf("modes %v, want %v", got, c.modes)
			}
			if len(c.not) > 0 && agent.Refused(c.info, c.not[0]) != c.says {
				t.Errorf("says %q, want %q", agent.Refused(c.info, c.not[0]), c.says)
			}
		})
	}
}
