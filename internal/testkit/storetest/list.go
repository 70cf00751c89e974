package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/internal/runs"
)

// list reads all pages of the tasks that a filter selects.
func (r *rig) list(f runs.Filter) (tasks []*a2av1.Task, total int) {
	r.Helper()
	for {
		page, err := r.List(r.ctx(), me, f)
		if err != nil || f.PageSize > 0 && len(page.Tasks) > f.PageSize || f.PageToken != "" && page.Total != total {
			r.Fatalf("List(%+v) = %d of %d, %v", f, len(page.Tasks), page.Total, err)
		}
		tasks, total = append(tasks, page.Tasks...), page.Total
		if page.NextToken == "" {
			return tasks, total
		}
		f.PageToken = page.NextToken
	}
}

func ids(tasks []*a2av1.Task) []string {
	out := []string{}
	for _, t := range tasks {
		out = append(out, t.GetId())
	}
	return out
}

func lists(t *testing.T, open Open) {
	t.Run("A-05 tasks written at the same time are listed once, newest status first", func(t *testing.T) {
		r := newRig(t, open)
		var wg sync.WaitGroup
		for w := range 10 {
			wg.Go(func() {
				for i := range 25 {
					r.create(task(id(w*25 + i)))
					r.clock.Move(time.Duration(i%3) * time.Millisecond)
					for _, c := range r.claims() {
						r.append(c, started(""))
					}
				}
			})
		}
		wg.Wait()
		tasks, total := r.list(runs.Filter{PageSize: 7})
		if len(tasks) != 250 || total != 250 {
			t.Fatalf("%d tasks, total %d, want 250", len(tasks), total)
		}
		for i := 1; i < len(tasks); i++ {
			if d := newer(tasks[i-1], tasks[i]); d >= 0 {
				t.Fatalf("%s stands before %s", tasks[i-1], tasks[i])
			}
		}
	})
	t.Run("A-05 a new status moves a task to the front", func(t *testing.T) {
		r := newRig(t, open)
		r.create(task("one"))
		r.clock.Move(time.Second)
		r.create(task("two"))
		r.clock.Move(time.Second)
		for _, c := range r.claims() {
			if c.Root == "one" {
				r.append(c, started(""))
			}
		}
		if tasks, _ := r.list(runs.Filter{}); !slices.Equal(ids(tasks), []string{"one", "two"}) {
			t.Fatalf("listed %v", ids(tasks))
		}
	})
	t.Run("A-05 filters select, alone and together", func(t *testing.T) {
		r := newRig(t, open)
		start := r.clock.Now()
		for i := range 24 {
			n := task(id(i))
			n.Accepted.Agent = fmt.Sprint("a", i%2)
			n.Accepted.Message.ContextId = fmt.Sprint("c", i%3)
			r.create(n)
			if c := r.claim(id(i)); i%4 == 0 {
				r.append(c, succeeded())
			}
			r.clock.Move(time.Second)
		}
		for _, f := range filters(start) {
			want := []string{}
			for i := 23; i >= 0; i-- {
				if selects(f, start, i) {
					want = append(want, id(i))
				}
			}
			f.PageSize = 2
			if tasks, total := r.list(f); total != len(want) || !slices.Equal(ids(tasks), want) {
				t.Errorf("%+v lists %v, total %d, want %v", f, ids(tasks), total, want)
			}
		}
	})
}

// newer compares two tasks by their order in a list, newest status first.
func newer(a, b *a2av1.Task) int {
	if d := b.GetStatus().GetTimestamp().AsTime().Compare(a.GetStatus().GetTimestamp().AsTime()); d != 0 {
		return d
	}
	if a.GetId() > b.GetId() {
		return -1
	}
	return 1
}

// filters returns filters with all combinations of set fields.
func filters(start time.Time) []runs.Filter {
	var all []runs.Filter
	for i := range 16 {
		var f runs.Filter
		if i&1 > 0 {
			f.Agent = "a0"
		}
		if i&2 > 0 {
			f.ContextID = "c1"
		}
		if i&4 > 0 {
			f.State = a2av1.TaskState_TASK_STATE_COMPLETED
		}
		if i&8 > 0 {
			f.StatusAfter = start.Add(4 * time.Second) // that of a task that all other fields select
		}
		all = append(all, f)
	}
	return append(all, runs.Filter{Agent: "none"}, runs.Filter{ContextID: "none"}, runs.Filter{StatusAfter: start.Add(time.Hour)},
		runs.Filter{StatusAfter: time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC)}, runs.Filter{StatusAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
		runs.Filter{StatusAfter: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)})
}

// selects reports whether a filter selects task i.
func selects(f runs.Filter, start time.Time, i int) bool {
	return (f.Agent == "" || f.Agent == fmt.Sprint("a", i%2)) &&
		(f.ContextID == "" || f.ContextID == fmt.Sprint("c", i%3)) &&
		(f.State == 0 || i%4 == 0) &&
		!start.Add(time.Duration(i)*time.Second).Before(f.StatusAfter)
}

func pages(t *testing.T, open Open) {
	t.Run("A-05 a page token serves its owner and filter for an hour", func(t *testing.T) {
		r := newRig(t, open)
		for i := range 5 {
			r.create(task(id(i)))
		}
		f := runs.Filter{PageSize: 2, Agent: "a"}
		page, err := r.List(r.ctx(), me, f)
		if err != nil || page.NextToken == "" {
			t.Fatalf("List = %v, %v", page, err)
		}
		f.PageToken = page.NextToken
		f.PageSize = 3 // may change
		if page, err := r.List(r.ctx(), me, f); err != nil || len(page.Tasks) != 3 || page.NextToken != "" {
			t.Fatalf("List = %v, %v, want the last 3", page, err)
		}
		other := f
		other.Agent = ""
		turned := f
		turned.Agent, turned.ContextID = "", "a"
		for name, call := range map[string]func() (runs.Page, error){
			"owner":   func() (runs.Page, error) { return r.List(r.ctx(), "acme/bob", f) },
			"filter":  func() (runs.Page, error) { return r.List(r.ctx(), me, other) },
			"field":   func() (runs.Page, error) { return r.List(r.ctx(), me, turned) },
			"nothing": func() (runs.Page, error) { return r.List(r.ctx(), me, runs.Filter{PageToken: "x"}) },
			"bytes":   func() (runs.Page, error) { return r.List(r.ctx(), me, runs.Filter{PageToken: "!"}) },
			"changed": func() (runs.Page, error) {
				f := f
				f.PageToken = f.PageToken[:20] + "AAAA" + f.PageToken[24:]
				return r.List(r.ctx(), me, f)
			},
			"late": func() (runs.Page, error) {
				r.clock.Move(time.Hour + 2*time.Second)
				defer r.clock.Move(-time.Hour - 2*time.Second)
				return r.List(r.ctx(), me, f)
			},
		} {
			if _, err := call(); !errors.Is(err, runs.ErrPageToken) {
				t.Errorf("%s: %v, want ErrPageToken", name, err)
			}
		}
	})
	t.Run("A-05 what changes meanwhile moves no other task", func(t *testing.T) {
		r := newRig(t, open)
		for i := range 6 {
			r.create(task(id(i)))
			r.clock.Move(time.Second)
		}
		page, err := r.List(r.ctx(), me, runs.Filter{PageSize: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.claims() {
			if c.Root == id(4) || c.Root == id(3) { // 3 is where the page ended
				r.append(c, started(""))
			}
		}
		r.create(task("new"))
		rest, err := r.List(r.ctx(), me, runs.Filter{PageSize: 3, PageToken: page.NextToken})
		if err != nil || !slices.Equal(ids(rest.Tasks), []string{id(2), id(1), id(0)}) || rest.Total != 6 {
			t.Fatalf("List = %v of %d, %v", ids(rest.Tasks), rest.Total, err)
		}
	})
	t.Run("A-05 a page has 50 tasks where nothing else is asked for", func(t *testing.T) {
		r := newRig(t, open)
		for i := range 51 {
			r.create(task(id(i)))
		}
		page, err := r.List(r.ctx(), me, runs.Filter{})
		if err != nil || len(page.Tasks) != 50 || page.NextToken == "" {
			t.Fatalf("%d tasks, %v", len(page.Tasks), err)
		}
	})
}

func fits(t *testing.T, open Open) {
	t.Run("A-05 a page ends before a task that does not fit, but holds one", func(t *testing.T) {
		r := newRig(t, open)
		for i := range 7 {
			r.create(task(id(i)))
			r.clock.Move(time.Second)
		}
		var got []string
		f := runs.Filter{PageSize: 5}
		for _, want := range []int{2, 2, 1, 1, 1} { // the 5th one and the 6th one are large
			room := 2
			f.Fits = func(t *a2av1.Task) bool {
				if room--; t.GetId() == id(2) || t.GetId() == id(1) {
					room -= 2
				}
				t.History = nil
				return room >= 0
			}
			page, err := r.List(r.ctx(), me, f)
			if err != nil || len(page.Tasks) != want || page.Total != 7 || (page.NextToken == "") != (len(got)+want == 7) {
				t.Fatalf("behind %v: %v of %d, %v", got, ids(page.Tasks), page.Total, err)
			}
			for _, task := range page.Tasks {
				if task.GetHistory() != nil {
					t.Errorf("%s is not as it was cut", task.GetId())
				}
			}
			got, f.PageToken = append(got, ids(page.Tasks)...), page.NextToken
		}
		if !slices.Equal(got, []string{id(6), id(5), id(4), id(3), id(2), id(1), id(0)}) {
			t.Errorf("listed %v", got)
		}
		if task, _, err := r.Task(r.ctx(), runs.Key{Owner: me, ID: id(0)}); err != nil || len(task.GetHistory()) == 0 {
			t.Errorf("cut for others too: %v, %v", task, err)
		}
	})
}
