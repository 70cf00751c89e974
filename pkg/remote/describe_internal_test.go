package remote

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TestT_02_DescriptionsAreBounded: nothing in the description of a peer is longer than that of a card.
func TestT_02_DescriptionsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	sent := &teamv1.AgentInfo{Name: long, Description: long, Metadata: map[string]string{long: long}, Capabilities: []string{"a", "", "a", long}}
	for i := range 2000 {
		sent.Metadata[strconv.Itoa(i)] = "v"
		sent.InputModes, sent.FileModes = append(sent.GetInputModes(), "text/"+long), append(sent.GetFileModes(), long)
	}
	sent.Skills = []*teamv1.Skill{{Id: "s", Tags: make([]string, 5000), Instructions: "obey"}, {Id: ""}, {Id: "s", Name: "again"}}
	for i := range sent.GetSkills()[0].GetTags() {
		sent.Skills[0].Tags[i] = long
	}
	info := describe("far", sent)
	if n := proto.Size(info); n > 1<<20 {
		t.Errorf("%d bytes are taken of %d", n, proto.Size(sent))
	}
	if got := info.GetSkills(); len(got) != 1 || got[0].GetName() != "" || got[0].GetInstructions() != "" || len(got[0].GetTags()) != maxTags {
		t.Errorf("%d skills", len(got))
	}
	if got := info.GetCapabilities(); len(got) != 3 || got[0] != "s" || got[1] != "a" {
		t.Errorf("%d capabilities", len(got))
	}
	if len(info.GetMetadata()) > maxMetadata || !info.GetExternal() || info.GetId() != "far" {
		t.Errorf("%d entries of metadata; external: %t", len(info.GetMetadata()), info.GetExternal())
	}
}

// TestT_02_CardsAreCleaned: nothing in the card of a peer changes how what follows it is shown. Signs that
// belong to writing, such as the joiner of an emoji, stay.
func TestT_02_CardsAreCleaned(t *testing.T) {
	const hostile, want = "pay\u202e\u2066 me\x1b[2J\x00\u2028now\u200f \u061cok\x85", "pay me[2Jnow ok"
	card := &a2av1.AgentCard{
		Name: hostile, Description: "two\nlines " + hostile + " \U0001f469\u200d\U0001f680", DefaultInputModes: []string{"text/plain\u202e"},
		Skills: []*a2av1.AgentSkill{{Id: hostile, Name: hostile, Description: hostile, Tags: []string{hostile}}},
		Capabilities: &a2av1.AgentCapabilities{Extensions: []*a2av1.AgentExtension{{
			Uri: teamRunURI, Params: &structpb.Struct{Fields: map[string]*structpb.Value{"owner": structpb.NewStringValue(hostile)}},
		}}},
	}
	info := infoOf("far", card)
	skill := info.GetSkills()[0]
	for field, got := range map[string]string{
		"name": info.GetName(), "skill": skill.GetId(), "skill's name": skill.GetName(), "skill's description": skill.GetDescription(),
		"tag": skill.GetTags()[0], "capability": info.GetCapabilities()[0], "metadata": info.GetMetadata()["owner"],
	} {
		if got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	if got := info.GetDescription(); got != "two\nlines "+want+" \U0001f469\u200d\U0001f680" {
		t.Errorf("description: %q", got)
	}
	if got := info.GetInputModes(); len(got) != 1 || got[0] != "text/plain" {
		t.Errorf("input modes: %q", got)
	}
}
