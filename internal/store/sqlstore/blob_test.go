package sqlstore_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/inflight"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// file returns a file of n bytes as a part of a message.
func file(n int, fill string) *a2av1.Part {
	return &a2av1.Part{Content: &a2av1.Part_Raw{Raw: bytes.Repeat([]byte(fill), n/len(fill))}, MediaType: "image/png", Filename: "cat.png"}
}

// received is the event of a message with a part.
func received(p *a2av1.Part) *teamv1.Event {
	m := &a2av1.Message{MessageId: "m2", Role: a2av1.Role_ROLE_USER, Parts: []*a2av1.Part{p}}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Received{Received: &teamv1.Received{Message: m}}}
}

// artifact is the event of an artifact with a part.
func artifact(p *a2av1.Part) *teamv1.Event {
	a := &a2av1.Artifact{ArtifactId: "x", Name: "picture", Parts: []*a2av1.Part{p}}
	return &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Artifact{Artifact: &teamv1.ArtifactUpdate{Artifact: a, LastChunk: true}}}
}

// withFile is a new task whose message has a part.
func withFile(id string, p *a2av1.Part) runs.New {
	n := task(id)
	n.Accepted.Message.Parts = append(n.Accepted.Message.Parts, p)
	return n
}

// wantFiles checks that the file stands in the events of a task and in the task itself.
func wantFiles(t *testing.T, s *sqlstore.Store, id string, raw []byte, events int) {
	t.Helper()
	records, err := s.Events(t.Context(), key(id), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, rec := range records {
		ev := rec.Event
		for _, parts := range [][]*a2av1.Part{ev.GetAccepted().GetMessage().GetParts(), ev.GetReceived().GetMessage().GetParts(), ev.GetArtifact().GetArtifact().GetParts()} {
			for _, p := range parts {
				if bytes.Equal(p.GetRaw(), raw) {
					found++
				}
			}
		}
	}
	if found != events {
		t.Errorf("the file stands in %d events, want %d", found, events)
	}
	got, _, err := s.Task(t.Context(), key(id))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.GetArtifacts()); n == 0 || !bytes.Equal(got.GetArtifacts()[0].GetParts()[0].GetRaw(), raw) {
		t.Errorf("the task has %d artifacts, and not the file", n)
	}
}

// TestA_16_Blobs stores a file that occurs in several events of a run once, hands it out unchanged, also
// after a restart, copies it with its run and deletes it with it.
func TestA_16_Blobs(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			clock := time.Now()
			at := url(t)
			cfg := sqlstore.Config{Clock: func() time.Time { return clock }, Retention: time.Hour}
			s, err := sqlstore.Open(t.Context(), at, cfg)
			if err != nil {
				t.Fatal(err)
			}
			p := file(2600<<10, "cat")
			if _, _, err := s.Create(t.Context(), withFile("one", p)); err != nil {
				t.Fatal(err)
			}
			c := claim(t, s, "r")
			record(t, c, received(p))
			record(t, c, artifact(p), note("x"), received(file(1<<10, "small")))
			wantFiles(t, s, "one", p.GetRaw(), 3)
			record(t, c, end())
			if _, err := s.Park(t.Context(), c, runs.Park{Done: true}); err != nil {
				t.Fatal(err)
			}
			finish(t, s, "two", artifact(p))
			if n := s.Count(t.Context(), t, "blob"); n != 2*3 {
				t.Errorf("%d pieces of blobs of two runs with the same file, want three for each", n)
			}
			if n := s.Largest(t.Context(), t); n > 4<<10 {
				t.Errorf("an event or a snapshot has %d bytes", n)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			s = open(t, at, cfg)
			wantFiles(t, s, "one", p.GetRaw(), 3)
			page, err := s.List(t.Context(), me, runs.Filter{PageSize: 10})
			if err != nil || len(page.Tasks) != 2 || !bytes.Equal(page.Tasks[0].GetArtifacts()[0].GetParts()[0].GetRaw(), p.GetRaw()) {
				t.Errorf("List: %d tasks, %v", len(page.Tasks), err)
			}
			for to, url := range urls(t) {
				copied := open(t, url(t), cfg)
				if _, err := sqlstore.Copy(t.Context(), s, copied); err != nil {
					t.Fatalf("copy to %s: %v", to, err)
				}
				wantFiles(t, copied, "one", p.GetRaw(), 3)
				wantFiles(t, copied, "two", p.GetRaw(), 1)
			}
			clock = clock.Add(2 * time.Hour)
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := s.Count(t.Context(), t, "blob"); n != 0 {
				t.Errorf("%d blobs are left of runs that were deleted", n)
			}
		})
	}
}

// TestP15_DamagedBlob reports data loss for the events of a blob that is damaged or gone, and for no
// others.
func TestP15_DamagedBlob(t *testing.T) {
	for name, url := range urls(t) {
		t.Run("P15 "+name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			for _, id := range []string{"changed", "gone", "good"} {
				finish(t, s, id, artifact(file(64<<10, "cat")))
			}
			s.Exec(t.Context(), t, `UPDATE blob SET body = (SELECT body FROM event WHERE id = 'good' AND seq = 1) WHERE id = 'changed'`)
			s.Exec(t.Context(), t, `DELETE FROM blob WHERE id = 'gone'`)
			for _, id := range []string{"changed", "gone"} {
				_, _, terr := s.Task(t.Context(), key(id))
				_, eerr := s.Events(t.Context(), key(id), 0, 100)
				if !errors.Is(terr, runs.ErrDataLoss) || !errors.Is(eerr, runs.ErrDataLoss) {
					t.Errorf("%s: Task %v, Events %v, want ErrDataLoss", id, terr, eerr)
				}
			}
			if records, err := s.Events(t.Context(), key("changed"), 0, 1); err != nil || len(records) != 1 {
				t.Errorf("an event without the blob: %v", err)
			}
			wantFiles(t, s, "good", file(64<<10, "cat").GetRaw(), 1)
		})
	}
}

// A task that waits several times, with a streamed text that grows, leaves no blobs.
func TestA_16_ParkedTexts(t *testing.T) {
	t.Parallel()
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, url(t), sqlstore.Config{})
			create(t, s, "one")
			const pieces = 3
			for i := range pieces {
				c := claim(t, s, "r")
				piece := strings.Repeat(string(rune('a'+i)), 40<<10)
				record(t, c, &teamv1.Event{Agent: "a", Kind: &teamv1.Event_Delta{Delta: &teamv1.Delta{ArtifactId: "x", Text: piece}}})
				if _, err := s.Park(t.Context(), c, runs.Park{Until: time.Now().Add(-time.Second)}); err != nil {
					t.Fatal(err)
				}
			}
			if n := s.Count(t.Context(), t, "blob"); n != 0 {
				t.Errorf("%d blobs are left of what the task was when it waited", n)
			}
			task, _, err := s.Task(t.Context(), key("one"))
			if err != nil || len(task.GetArtifacts()) != 1 {
				t.Fatalf("Task: %d artifacts, %v", len(task.GetArtifacts()), err)
			}
			size := 0
			for _, p := range task.GetArtifacts()[0].GetParts() {
				size += len(p.GetText())
			}
			if size != pieces*40<<10 {
				t.Errorf("the artifact has %d bytes", size)
			}
		})
	}
}

// Before a large record is read for a caller, its memory is reserved: of a file, of many small parts, and of a list, which
// holds one task at a time.
func TestP11_LargeRecordsAreReserved(t *testing.T) {
	t.Parallel()
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			s, err := sqlstore.Open(t.Context(), at, sqlstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			finish(t, s, "small", artifact(file(1<<10, "cat")))
			finish(t, s, "file", artifact(file(300<<10, "cat")))
			many := artifact(file(20<<10, "dog"))
			for range 9 {
				many.GetArtifact().Artifact.Parts = append(many.GetArtifact().Artifact.Parts, file(20<<10, "dog"))
			}
			finish(t, s, "many", many)
			if err := s.Close(); err != nil { // what it keeps of its runs
				t.Fatal(err)
			}
			s = open(t, at, sqlstore.Config{})

			full := errors.New("no memory")
			var asked []int64
			refusing := inflight.WithReader(t.Context(), func(n int64) error { asked = append(asked, n); return full })
			for _, id := range []string{"file", "many"} {
				_, _, err := s.Task(refusing, key(id))
				_, childErr := s.Events(refusing, key(id), 0, 100)
				if wantEvents := id == "file"; !errors.Is(err, full) || errors.Is(childErr, full) != wantEvents { // events of small parts are read with their rows
					t.Errorf("%s: Task %v, Events %v, want the refusal", id, err, childErr)
				}
			}
			if _, _, err := s.Task(refusing, key("small")); err != nil {
				t.Errorf("a small task: %v", err)
			}
			if _, err := s.List(refusing, me, runs.Filter{PageSize: 10}); !errors.Is(err, full) {
				t.Errorf("List: %v, want the refusal", err)
			}
			for _, n := range asked {
				if n < 200<<10 || n > 310<<10 {
					t.Errorf("%d bytes were asked for, want the size of a task", n)
				}
			}
		})
	}
}
