package sqlstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// Stats are read while the store is in use, and change nothing.
func TestStats(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			at := url(t)
			s := filled(t, at)
			rows := s.Rows(t.Context(), t)
			v, err := sqlstore.OpenView(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			got, err := v.Stats(t.Context(), 1)
			if err != nil || len(got.Missing) > 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			counts := map[string]int64{}
			for _, c := range got.Tables {
				counts[c.Name] = c.Rows
			}
			for what, want := range map[string]int64{"journals": 3, "conversations": 1, "conversation entries": 2, "audit records": 1, "webhooks": 0} {
				if counts[what] != want {
					t.Errorf("%s: %d, want %d", what, counts[what], want)
				}
			}
			tasks := map[string]int64{}
			for _, st := range got.Tasks {
				tasks[st.State] = st.Count
				if st.Oldest.IsZero() || st.Newest.Before(st.Oldest) {
					t.Errorf("times of %+v", st)
				}
			}
			if tasks["COMPLETED"] != 1 || tasks["SUBMITTED"]+tasks["WORKING"] != 2 {
				t.Errorf("tasks %v", tasks)
			}
			if fmt.Sprintln(got.Accounts[0].Account, got.Accounts[0].Tasks, got.Accounts[0].Open, got.AllAccounts) != "acme 3 2 1\n" || got.Accounts[0].Bytes == 0 {
				t.Errorf("accounts %+v of %d", got.Accounts, got.AllAccounts)
			}
			if got.Schema != got.Known || got.Bytes == 0 || !got.InUse && name == "SQLite" {
				t.Errorf("%+v", got)
			}
			if now := s.Rows(t.Context(), t); now != rows {
				t.Errorf("%d rows, there were %d", now, rows)
			}
		})
	}
}

func TestView_NoStore(t *testing.T) {
	if _, err := sqlstore.OpenView(t.Context(), "sqlite:"+t.TempDir()+"/none.db"); !errors.Is(err, sqlstore.ErrNoStore) {
		t.Errorf("%v, want ErrNoStore", err)
	}
}
