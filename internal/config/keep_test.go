package config_test

import (
	"strings"
	"testing"

	"github.com/agentteams/team-server/internal/config"
)

// Each time of server.keep is 1h at least.
func TestKeep(t *testing.T) {
	for keep, fault := range map[string]string{
		"conversations: 1h": "", "boards: 1h": "", "audit: 1h": "",
		"conversations: 59m": "keep.conversations must be 1h or more", "boards: 0s": "keep.boards must be 1h or more", "audit: -1h": "keep.audit must be 1h or more",
		"tasks: 1h": "known here: audit, boards, conversations",
	} {
		_, err := config.Loader{}.Parse("team.yaml", []byte("version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\nserver: {keep: {"+keep+"}}\n"))
		if fault == "" && err != nil || fault != "" && (err == nil || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%s: %v, want %q", keep, err, fault)
		}
	}
}
