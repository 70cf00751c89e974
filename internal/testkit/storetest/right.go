package storetest

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/auth"
)

// rights tests the rights of auth.Store: a right is replaced by one that lasts longer; the owners with
// unfinished tasks are found none of whose rights lasts; and old rights are forgotten when their owner has no
// unfinished tasks.
func rights(t *testing.T, open Open) {
	r := newRig(t, open)
	at := r.clock.Now()
	right := func(owner, issuer, key string, after time.Duration) auth.Right {
		return auth.Right{Owner: owner, Source: auth.Source{Issuer: issuer, Key: key}, Until: at.Add(after)}
	}
	put := func(list ...auth.Right) {
		t.Helper()
		if err := r.PutRights(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	want := func(owner string, list ...auth.Right) {
		t.Helper()
		got, err := r.Rights(t.Context(), owner)
		slices.SortFunc(got, func(a, b auth.Right) int {
			return cmp.Or(cmp.Compare(a.Source.Key, b.Source.Key), cmp.Compare(a.Source.Issuer, b.Source.Issuer))
		})
		if err != nil || !slices.EqualFunc(got, list, func(a, b auth.Right) bool {
			return a.Owner == b.Owner && a.Source == b.Source && a.Until.Equal(b.Until)
		}) {
			t.Errorf("%v, %v; want %v", got, err, list)
		}
	}
	find := func(accepted []auth.Source, list map[string]time.Time) {
		t.Helper()
		got, err := r.EndedRights(t.Context(), r.clock.Now(), accepted)
		if err != nil || !maps.EqualFunc(got, list, time.Time.Equal) {
			t.Errorf("ended with %v: %v, %v; want %v", accepted, got, err, list)
		}
	}
	const corp, other = "https://corp.example", "https://other.example"
	one, two := right(me, corp, "one", time.Minute), right(me, corp, "two", time.Hour)
	put(one, two, right("acme/idle", corp, "one", time.Minute))
	put(right(me, corp, "two", time.Second))
	want(me, one, two)
	want("acme/eve")
	put(right(me, other, "one", time.Second))
	third := right(me, other, "one", 2*time.Minute)
	put(third)
	want(me, one, third, two)

	r.create(task("t1"))
	for _, accepted := range [][]auth.Source{{{Issuer: corp}}, {{Issuer: corp, Key: "two"}}, {{Issuer: other, Key: "one"}, {Issuer: corp, Key: "three"}}} {
		find(accepted, nil)
	}
	for _, accepted := range [][]auth.Source{nil, {{Issuer: corp, Key: "three"}}, {{Issuer: other, Key: "two"}}, {{Issuer: "certificate"}}} {
		find(accepted, map[string]time.Time{me: two.Until})
	}
	r.clock.Move(time.Hour - time.Millisecond)
	find([]auth.Source{{Issuer: corp}}, nil)
	r.clock.Move(time.Millisecond)
	find([]auth.Source{{Issuer: corp}}, map[string]time.Time{me: two.Until})

	sweep := func() {
		t.Helper()
		put(right("acme/new", corp, "one", 100*time.Hour))
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.Move(auth.RightsKept)
	sweep()
	want("acme/idle")
	want(me, one, third, two)
	r.append(r.claims()[0], succeeded())
	find(nil, nil)
	r.clock.Move(auth.RightsKept)
	sweep()
	want(me)
}
