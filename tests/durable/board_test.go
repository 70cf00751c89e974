//go:build linux

package durable

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/tests/rig"
)

const boardFile = `version: v1
agents: {bard: {scripted: {steps: [{text: "An ode"}]}}}
teams: {crew: {board: true, workflow: {steps: [{id: write, agent: bard}]}}}
`

// TestBoard_P1_P2_KilledInMidChange kills the server under changes of a board: what was
// acknowledged is there, and a change that is sent again is made once.
func TestBoard_P1_P2_KilledInMidChange(t *testing.T) {
	const workers, items, lives = 4, 12, 4
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			c := command{config: filepath.Join(t.TempDir(), "team.yaml"), store: s.url(t), args: s.args, dir: t.ArtifactDir()}
			if err := os.WriteFile(c.config, []byte(boardFile), 0o600); err != nil {
				t.Fatal(err)
			}
			all := make([]*boardWorker, workers)
			for i := range all {
				all[i] = &boardWorker{name: fmt.Sprint("w", i), items: items}
			}
			var board teamv1.BoardServiceClient
			for life := 1; life <= lives; life++ {
				r := serve(t, c)
				board = teamv1.NewBoardServiceClient(rig.Services(t, r.target)[0])
				acknowledged := make(chan struct{})
				var working sync.WaitGroup
				for _, w := range all {
					working.Go(func() { w.work(t.Context(), board, acknowledged) })
				}
				go func() {
					working.Wait()
					close(acknowledged)
				}()
				if life < lives {
					for range workers * items / 2 {
						<-acknowledged
					}
					r.signal(syscall.SIGKILL)
				}
				for range acknowledged { // until all have stopped
				}
				if life < lives {
					<-r.gone
				}
			}
			want := map[string]*teamv1.WorkItem{}
			for _, w := range all {
				if w.err != nil || len(w.made) != items {
					t.Fatalf("%s has completed %d items of %d: %v", w.name, len(w.made), items, w.err)
				}
				for _, it := range w.made {
					want[it.GetId()] = it
				}
			}
			got, err := board.ListWorkItems(t.Context(), &teamv1.ListWorkItemsRequest{TeamId: "crew", PageSize: 100})
			if err != nil || len(got.GetItems()) != workers*items || got.GetNextPageToken() != "" {
				t.Fatalf("%d items, want %d: %v", len(got.GetItems()), workers*items, err)
			}
			for _, it := range got.GetItems() {
				if !proto.Equal(it, want[it.GetId()]) || it.GetVersion() != 3 {
					t.Errorf("there is %v, acknowledged was %v", it, want[it.GetId()])
				}
			}
		})
	}
}

// boardWorker adds items, claims and completes them, one call after the other. What
// failed is sent again, as it was, when it goes on.
type boardWorker struct {
	name  string
	items int
	id    string             // of the item that is worked on
	done  int                // calls that were acknowledged
	made  []*teamv1.WorkItem // as they were acknowledged at last
	err   error              // of the last call
}

func (w *boardWorker) work(ctx context.Context, board teamv1.BoardServiceClient, acknowledged chan<- struct{}) {
	for len(w.made) < w.items {
		if w.err = w.call(ctx, board); w.err != nil {
			return
		}
		w.done++
		acknowledged <- struct{}{}
	}
}

func (w *boardWorker) call(ctx context.Context, board teamv1.BoardServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	op := fmt.Sprint(w.name, "-", w.done)
	switch w.done % 3 {
	case 0:
		resp, err := board.AddWorkItem(ctx, &teamv1.AddWorkItemRequest{TeamId: "crew", Title: op, Op: op})
		w.id = resp.GetItem().GetId()
		return err
	case 1:
		_, err := board.ClaimWorkItem(ctx, &teamv1.ClaimWorkItemRequest{TeamId: "crew", ItemId: w.id, Op: op})
		return err
	}
	resp, err := board.CompleteWorkItem(ctx, &teamv1.CompleteWorkItemRequest{TeamId: "crew", ItemId: w.id, Result: op, Op: op})
	if err == nil {
		w.made = append(w.made, resp.GetItem())
	}
	return err
}
