package board

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/testkit/fakellm"
	"github.com/agentteams/team-server/tests/rig"
)

// TestR_003_18_AddWorkItem: what is added is there, for the account alone.
func TestR_003_18_AddWorkItem(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		ann, bob, eve := h.board(t, binding, "acme", "ann"), h.board(t, binding, "acme", "bob"), h.board(t, binding, "other", "eve")
		req := &teamv1.AddWorkItemRequest{TeamId: "desk", Title: "Write it", Description: "All of it", Priority: 5, Agent: "writer", Op: "once"}
		made, err := ann.AddWorkItem(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := &teamv1.WorkItem{
			Id: "t1", TeamId: "desk", Title: "Write it", Description: "All of it", Priority: 5, State: teamv1.WorkItem_STATE_PENDING, MaxRetries: 3, Version: 1, Number: 1,
			CreatedBy: &teamv1.BoardActor{Principal: "acme/ann", Agent: "writer"}, Source: teamv1.WorkItem_SOURCE_ADDED,
		}
		if diff := cmp.Diff(want, made.GetItem(), protocmp.Transform(), protocmp.IgnoreFields(want, "created", "changed")); diff != "" || made.GetItem().GetCreated() == nil {
			t.Errorf("%s", diff)
		}
		again, err := ann.AddWorkItem(t.Context(), req)
		if diff := cmp.Diff(made, again, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("again: %v\n%s", err, diff)
		}
		req.Title = "Another"
		_, err = ann.AddWorkItem(t.Context(), req)
		fault(t, err, bad, invalid, "op")
		if diff := cmp.Diff(made.GetItem(), bob.get("t1"), protocmp.Transform()); diff != "" {
			t.Errorf("bob sees\n%s", diff)
		}
		if got := ann.add("").GetPriority(); got != 3 {
			t.Errorf("priority %d", got)
		}
		eve.is("")
		_, err = eve.GetWorkItem(t.Context(), &teamv1.GetWorkItemRequest{TeamId: "desk", ItemId: "t1"})
		fault(t, err, "NotFound", "WORK_ITEM_NOT_FOUND")
		fault(t, eve.claim("t1"), "NotFound", "WORK_ITEM_NOT_FOUND")
		eve.add("mine")
		ann.is("t1:PENDING t2:PENDING")
		_, err = ann.AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "desk"})
		fault(t, err, bad, invalid, "title")
		_, err = ann.AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "desk", Title: "x", Agent: "nobody"})
		fault(t, err, bad, invalid, "agent")
		_, err = ann.AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "none", Title: "x"})
		fault(t, err, "NotFound", "TEAM_NOT_FOUND")
		_, err = ann.AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "plain", Title: "x"})
		fault(t, err, "FailedPrecondition", "DISABLED")
	})
}

// TestS_47_R_003_19_R_003_25_Board is the scenario, on real time.
func TestS_47_R_003_19_R_003_25_Board(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		b := h.board(t, binding, "acme", "ann")
		b.add("a")
		b.add("b", "a")
		b.add("c", "a")
		b.add("d", "b", "c")
		if got := b.list(&teamv1.ListWorkItemsRequest{Claimable: true}); got != "a:PENDING" {
			t.Errorf("claimable is %s", got)
		}
		fault(t, b.claim("b"), aborted, conflict)

		var wg sync.WaitGroup
		won := make(chan error, 20)
		for range 20 {
			wg.Go(func() {
				_, err := b.ClaimWorkItem(t.Context(), &teamv1.ClaimWorkItemRequest{TeamId: "desk", ItemId: "a", Agent: "writer", Lease: durationpb.New(time.Second)})
				won <- err
			})
		}
		wg.Wait()
		close(won)
		winners := 0
		for err := range won {
			if err == nil {
				winners++
				continue
			}
			fault(t, err, aborted, conflict)
		}
		if winners != 1 {
			t.Errorf("%d claims won", winners)
		}
		until(t, "the claim has lapsed", func() bool { return b.get("a").GetState() == teamv1.WorkItem_STATE_PENDING })
		fault(t, b.as("writer").complete("a", "late"), aborted, conflict)
		if it := b.get("a"); it.GetAssignee() != nil || it.GetRetryCount() != 0 {
			t.Errorf("lapsed: %v", it)
		}

		_, err := b.UpdateWorkItem(t.Context(), &teamv1.UpdateWorkItemRequest{TeamId: "desk", ItemId: "a", AddDependsOn: []string{"d"}})
		fault(t, err, bad, invalid, "addDependsOn[0]")

		for range 3 {
			b.is("a:PENDING b:BLOCKED c:BLOCKED d:BLOCKED")
			b.must(b.claim("a"), b.fail("a"))
		}
		b.is("a:FAILED b:SKIPPED c:SKIPPED d:SKIPPED")
	})
}

// TestR_003_20_R_003_21_CompleteAndFail: results and errors are kept, and only who
// holds an item may give them.
func TestR_003_20_R_003_21_CompleteAndFail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		ann, bob := h.board(t, binding, "acme", "ann"), h.board(t, binding, "acme", "bob")
		writer, parrot := ann.as("writer"), bob.as("parrot")
		ann.add("a")
		ann.add("b", "a")
		ann.must(writer.claim("a"))
		progress := int32(30)
		for _, other := range []at{ann, parrot, bob.as("writer")} { // of another principal it is another claim
			fault(t, other.claim("a"), aborted, conflict)
			fault(t, other.complete("a", "x"), aborted, conflict)
			fault(t, other.fail("a"), aborted, conflict)
			_, err := other.UpdateWorkItem(t.Context(), &teamv1.UpdateWorkItemRequest{TeamId: "desk", ItemId: "a", Agent: other.agent, Progress: &progress})
			fault(t, err, aborted, conflict)
		}
		before := writer.get("a").GetLeaseExpires().AsTime()
		resp, err := writer.UpdateWorkItem(t.Context(), &teamv1.UpdateWorkItemRequest{TeamId: "desk", ItemId: "a", Agent: "writer", Progress: &progress, Note: "first draft"})
		if err != nil || resp.GetItem().GetProgress() != 30 || resp.GetItem().GetNote() != "first draft" || resp.GetItem().GetLeaseExpires().AsTime().Before(before) {
			t.Errorf("%v, %v", resp, err)
		}
		if got := ann.list(&teamv1.ListWorkItemsRequest{Assignee: "writer"}); got != "a:IN_PROGRESS" {
			t.Errorf("the writer has %s", got)
		}
		ann.must(writer.complete("a", "the result"))
		if it := bob.get("a"); it.GetResult() != "the result" || it.GetState() != teamv1.WorkItem_STATE_COMPLETED || it.GetAssignee().GetAgent() != "writer" {
			t.Errorf("completed %v", it)
		}
		ann.is("a:COMPLETED b:PENDING")
		ann.must(parrot.claim("b"), parrot.fail("b"))
		it := bob.get("b")
		if it.GetError() != "broke" || it.GetState() != teamv1.WorkItem_STATE_PENDING || it.GetRetryCount() != 1 || it.GetAssignee() != nil {
			t.Errorf("failed %v", it)
		}
		_, err = bob.ClaimWorkItem(t.Context(), &teamv1.ClaimWorkItemRequest{TeamId: "desk", ItemId: "b", Version: it.GetVersion() - 1})
		fault(t, err, aborted, conflict)
		canceled, err := bob.CancelWorkItem(t.Context(), &teamv1.CancelWorkItemRequest{TeamId: "desk", ItemId: "b", Version: it.GetVersion()})
		if err != nil || canceled.GetItem().GetState() != teamv1.WorkItem_STATE_CANCELED {
			t.Errorf("%v, %v", canceled, err)
		}
		fault(t, ann.claim("b"), aborted, conflict)
	})
}

// TestR_003_25_Priority: the most important first, then the oldest, over pages.
func TestR_003_25_Priority(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		b := h.board(t, binding, "acme", "ann")
		for i, p := range []int32{1, 5, 3, 5, 4} {
			_, err := b.AddWorkItem(t.Context(), &teamv1.AddWorkItemRequest{TeamId: "desk", ItemId: string(rune('a' + i)), Title: "x", Priority: p})
			b.must(err)
		}
		if got := b.list(&teamv1.ListWorkItemsRequest{Claimable: true, PageSize: 2}); strings.ReplaceAll(got, ":PENDING", "") != "b d e c a" {
			t.Errorf("claimable are %s", got)
		}
		if got := b.list(&teamv1.ListWorkItemsRequest{State: teamv1.WorkItem_STATE_PENDING, PageSize: 2}); strings.ReplaceAll(got, ":PENDING", "") != "a b c d e" {
			t.Errorf("pending are %s", got)
		}
	})
}

// TestR_003_26_Messages: direct, for all, and answers; what is unread of each.
func TestR_003_26_Messages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house, binding int) {
		ann, bob, eve := h.board(t, binding, "acme", "ann"), h.board(t, binding, "acme", "bob"), h.board(t, binding, "other", "eve")
		post := func(b at, to, text string, reply int64) *teamv1.BoardMessage {
			resp, err := b.PostMessage(t.Context(), &teamv1.PostMessageRequest{TeamId: "desk", Agent: b.agent, To: to, Text: text, ReplyTo: reply})
			b.must(err)
			return resp.GetMessage()
		}
		unread := func(b at, reader string) string {
			resp, err := b.ListMessages(t.Context(), &teamv1.ListMessagesRequest{TeamId: "desk", Reader: reader, Unread: true})
			b.must(err)
			var texts []string
			for _, m := range resp.GetMessages() {
				texts = append(texts, m.GetText())
			}
			return strings.Join(texts, " ")
		}
		first := post(ann.as("writer"), "parrot", "direct", 0)
		post(ann, "", "broadcast", 0)
		if answer := post(bob, "", "answer", first.GetSeq()); answer.GetTo() != "writer" || answer.GetReplyTo() != first.GetSeq() || answer.GetFrom().GetPrincipal() != "acme/bob" {
			t.Errorf("%v", answer)
		}
		post(bob, "acme/ann", "to ann", 0)
		for reader, want := range map[string]string{"parrot": "direct broadcast", "writer": "broadcast answer", "": "to ann", "acme/bob": "broadcast", "desk": "broadcast"} {
			if got := unread(ann, reader); got != want {
				t.Errorf("%q has %q, want %q", reader, got, want)
			}
		}
		ack, err := bob.AckMessages(t.Context(), &teamv1.AckMessagesRequest{TeamId: "desk", Agent: "parrot", UpTo: first.GetSeq()})
		if err != nil || ack.GetUpTo() != first.GetSeq() || unread(ann, "parrot") != "broadcast" {
			t.Errorf("%v, %v, then %q", ack, err, unread(ann, "parrot"))
		}
		list, err := ann.ListMessages(t.Context(), &teamv1.ListMessagesRequest{TeamId: "desk", PageSize: 1})
		if err != nil || len(list.GetMessages()) != 1 || list.GetNextPageToken() == "" || strings.Join(list.GetMessages()[0].GetAcknowledgedBy(), " ") != "parrot" {
			t.Errorf("%v, %v", list, err)
		}
		if got := unread(eve, ""); got != "" {
			t.Errorf("eve reads %q", got)
		}
		_, err = ann.PostMessage(t.Context(), &teamv1.PostMessageRequest{TeamId: "desk", To: "nobody", Text: "x"})
		fault(t, err, bad, invalid, "to")
		_, err = ann.PostMessage(t.Context(), &teamv1.PostMessageRequest{TeamId: "desk", To: "other/eve", Text: "x"})
		fault(t, err, bad, invalid, "to")
	})
}

// TestR_003_23_BoardSurvives: what is on a board outlives the server.
func TestR_003_23_BoardSurvives(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(testing.TB) rig.Place{"sqlite": rig.SQLite, "postgres": rig.PostgreSQL} {
		t.Run(name, func(t *testing.T) {
			place, llm := at(t), fakellm.New(t)
			h := open(t, place, llm)
			b := h.board(t, 0, "acme", "ann")
			b.add("a")
			b.add("b", "a")
			b.must(b.claim("a"), b.complete("a", "kept"), b.claim("b"))
			held := b.get("b")
			h.stop()
			b = open(t, place, llm).board(t, 0, "acme", "ann")
			if got := b.get("a").GetResult(); got != "kept" {
				t.Errorf("result %q", got)
			}
			if diff := cmp.Diff(held, b.get("b"), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			b.must(b.complete("b", "after the restart"))
		})
	}
}
