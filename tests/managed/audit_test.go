package managed

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "modernc.org/sqlite" // the driver of the file that the test changes

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// auditedFile has an administrator, a caller of the same account, and one of another account.
const auditedFile = `version: v1
agents: {parrot: {api: true, scripted: {steps: [{echo: true}]}}}
server:
  auth:
    api_keys:
      - {name: ann, account: acme, sha256: "${ANN}", permissions: [READ, CALL, ANSWER, MANAGE, HALT, ADMIN]}
      - {name: bob, account: acme, sha256: "${BOB}"}
      - {name: eve, account: other, sha256: "${EVE}", manage: true}
`

// TestT_49_AuditLog: changes, refusals and failed sign-ins are on record, each in the chain of its
// account, without secrets.
func TestT_49_AuditLog(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		h := open(t, at, auditedFile, fakellm.New(t))
		services := rig.Services(t, h.Target)
		log := teamv1.NewAuditServiceClient(services[0])
		ann := apis(t, h.Target)[1]
		ann.create(t, team("crew", "x"))
		if _, err := ann.teams.UpdateTeam(t.Context(), update("crew", "", team("crew", "y"))); err != nil {
			t.Fatal(err)
		}
		halts := teamv1.NewHaltServiceClient(services[0])
		if _, err := halts.Halt(t.Context(), &teamv1.HaltRequest{Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: "crew", Reason: "wrong prices"}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second one ends nothing
			if _, err := halts.Resume(t.Context(), &teamv1.ResumeRequest{Kind: teamv1.HaltKind_HALT_KIND_TEAM, Name: "crew"}); err != nil {
				t.Fatal(err)
			}
		}
		keys := teamv1.NewKeyServiceClient(services[0])
		made, err := keys.CreateKey(t.Context(), &teamv1.CreateKeyRequest{Name: "cal", Account: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.RevokeKey(t.Context(), &teamv1.RevokeKeyRequest{Id: made.GetKey().GetId()}); err != nil {
			t.Fatal(err)
		}
		if _, err := ann.teams.DeleteTeam(t.Context(), &teamv1.DeleteTeamRequest{TeamId: "crew"}); err != nil {
			t.Fatal(err)
		}
		bob := apis(t, h.As("acme", "bob"))[0]
		if _, err := bob.teams.CreateTeam(t.Context(), yamlOf(team("his", "x"))); rig.Fault(err).Reason != "PERMISSION_DENIED" {
			t.Error(err)
		}
		if _, err := apis(t, h.As("acme", "stranger"))[0].teams.ListTeams(t.Context(), &teamv1.ListTeamsRequest{}); rig.Fault(err).Reason != "UNAUTHENTICATED" {
			t.Error(err)
		}
		want := []string{"catalog.create crew", "catalog.update crew", "halt team \"crew\"", "resume team \"crew\"", "key.create " + made.GetKey().GetId(), "key.revoke " + made.GetKey().GetId(), "catalog.delete crew", "denied CreateTeam"}
		until(t, "the refusals are recorded", func() bool {
			got := recorded(t, log, "acme")
			return len(got) == len(want) && slices.ContainsFunc(recorded(t, log, "-"), func(s string) bool { return strings.HasPrefix(s, "sign-in ") })
		})
		if got := recorded(t, log, "acme"); !slices.Equal(got, want) {
			t.Errorf("on record: %q, want %q", got, want)
		}
		head, err := log.VerifyAudit(t.Context(), &teamv1.VerifyAuditRequest{Account: "acme"})
		if err != nil || head.GetSeq() != int64(len(want)) {
			t.Errorf("%v, %v", head, err)
		}
		resp, err := log.ListAudit(t.Context(), &teamv1.ListAuditRequest{Account: "acme"})
		if text := fmt.Sprint(resp); err != nil || strings.Contains(text, made.GetSecret()) {
			t.Errorf("%v: %s", err, text)
		}
		eve := teamv1.NewAuditServiceClient(rig.Services(t, h.As("other", "eve"))[0])
		if _, err := eve.ListAudit(t.Context(), &teamv1.ListAuditRequest{Account: "acme"}); rig.Fault(err).Reason != "PERMISSION_DENIED" {
			t.Error(err)
		}
	})
}

// recorded returns the actions of an account on record, with their subjects.
func recorded(t *testing.T, log teamv1.AuditServiceClient, account string) (list []string) {
	t.Helper()
	resp, err := log.ListAudit(t.Context(), &teamv1.ListAuditRequest{Account: account})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.GetRecords() {
		list = append(list, r.GetAction()+" "+r.GetSubject())
	}
	return list
}

// TestT_49_FlippedBit: after a thousand concurrent changes the chain is intact; one flipped bit, a
// removed record and a cut end are found.
func TestT_49_FlippedBit(t *testing.T) {
	t.Parallel()
	at := rig.SQLite(t)
	h := open(t, at, auditedFile, fakellm.New(t))
	accounts := teamv1.NewAccountServiceClient(rig.Services(t, h.Target)[0])
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for n := range 50 {
				tokens := int64(1000 + n)
				if _, err := accounts.SetAccountLimits(t.Context(), &teamv1.SetAccountLimitsRequest{Account: fmt.Sprint("a", i), Limits: &teamv1.AccountLimits{MaxTokensPerDay: &tokens}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	log := teamv1.NewAuditServiceClient(rig.Services(t, h.Target)[0])
	head, err := log.VerifyAudit(t.Context(), &teamv1.VerifyAuditRequest{Account: "acme"})
	if err != nil || head.GetSeq() != 1000 {
		t.Fatalf("%v, %v", head, err)
	}
	h.stop()
	for what, statement := range map[string]string{
		"one flipped bit":  `UPDATE audit SET body = substr(body, 1, 20) || x'00' || substr(body, 22) WHERE account = 'acme' AND seq = 500`,
		"a removed record": `DELETE FROM audit WHERE account = 'acme' AND seq = 700`,
		"a cut end":        `DELETE FROM audit WHERE account = 'acme' AND seq > 990`,
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "team.db")
			b, err := os.ReadFile(strings.TrimPrefix(at.URL, "sqlite:"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			copied := rig.Place{URL: "sqlite:" + file}
			db, err := sql.Open("sqlite", file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			h := open(t, copied, auditedFile, fakellm.New(t))
			log := teamv1.NewAuditServiceClient(rig.Services(t, h.Target)[0])
			req := &teamv1.VerifyAuditRequest{Account: "acme"}
			if what == "a cut end" {
				if _, err := log.VerifyAudit(t.Context(), req); err != nil {
					t.Errorf("what is left is a chain: %v", err)
				}
				req.Seq, req.Hash = head.GetSeq(), head.GetHash()
			}
			_, err = log.VerifyAudit(t.Context(), req)
			if f := rig.Fault(err); f == nil || f.Reason != "DATA_LOSS" || !strings.Contains(f.Message, "the audit chain is broken") {
				t.Errorf("%v", f)
			}
		})
	}
}
