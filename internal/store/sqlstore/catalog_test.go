package sqlstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentteams/team-server/internal/catalog"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// TestR_003_23_CopyOfCatalog: it is copied as it was at its version, and goes on from it.
func TestR_003_23_CopyOfCatalog(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("from SQLite to "+name, func(t *testing.T) {
			from, to := open(t, sqliteURL(t), sqlstore.Config{}), open(t, url(t), sqlstore.Config{})
			at := time.UnixMilli(1000).UTC()
			for i, id := range []string{"a", "b", "c"} {
				e := catalog.Entry{ID: id, Data: []byte(id), Created: at, Changed: at, ChangedBy: "acme/ann"}
				if _, err := from.ChangeCatalog(t.Context(), int64(i), catalog.Change{Put: []catalog.Entry{e}}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := sqlstore.Copy(t.Context(), from, to); err != nil {
				t.Fatal(err)
			}
			want, err := from.Catalog(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got, err := to.Catalog(t.Context())
			if err != nil || got.Version != 3 {
				t.Errorf("version %d: %v", got.Version, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if v, err := to.ChangeCatalog(t.Context(), 3, catalog.Change{Delete: []string{"a"}}); err != nil || v != 4 {
				t.Errorf("version %d: %v", v, err)
			}
		})
	}
}
