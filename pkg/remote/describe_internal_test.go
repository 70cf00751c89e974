package remote

import (
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// TestT_02_DescriptionsAreBounded: nothing in the description of a peer is longer than that of a card.
func TestT_02_DescriptionsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
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
