package sqlstore_test

import (
	"testing"
	"time"

	"github.com/agentteams/team-server/internal/account"
	"github.com/agentteams/team-server/internal/engine"
	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/storetest"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestC_07_ThreeReplicasRaceForACap: each has a handle of its own of one database.
func TestC_07_ThreeReplicasRaceForACap(t *testing.T) {
	url := pgtest.URL(t)
	var stores []store.Store
	for range 3 {
		stores = append(stores, open(t, url, sqlstore.Config{}))
	}
	storetest.RaceForCap(t, stores)
}

// TestC_07_WhatAnEndedRunHoldsIsReleased: the end of a run whose journal cannot be driven is recorded
// by the engine, which does not settle.
func TestC_07_WhatAnEndedRunHoldsIsReleased(t *testing.T) {
	for name, url := range urls(t) {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock()
			s := open(t, url(t), sqlstore.Config{Clock: clock.Now})
			limits := account.Limits{PerDay: agent.Cost{Tokens: 100, Micros: agent.Unlimited}, InFlight: agent.NoLimit(), Zone: time.UTC}
			create(t, s, "ended", "running")
			claims, _, err := s.Claim(t.Context(), "r", engine.NewRoom(2, nil))
			if err != nil || len(claims) != 2 {
				t.Fatal(claims, err)
			}
			for _, c := range claims {
				r := account.Run{Account: "acme", Root: c.Root, Epoch: c.Epoch}
				rows, err := s.OpenUse(t.Context(), r, "2026-03-01", agent.Cost{})
				if err != nil {
					t.Fatal(err)
				}
				ten := agent.Cost{Tokens: 10}
				res, err := s.BookUse(t.Context(), r, account.Booking{Rows: rows, Reserve: &account.Reserve{Day: "2026-03-01", Least: ten, Enough: ten, Most: ten, Limits: limits}})
				if err != nil || !res.OK {
					t.Fatal(res, err)
				}
				if c.Root == "ended" {
					record(t, c, end())
				}
			}
			want := account.Use{Spent: agent.Cost{Tokens: 10}, Held: agent.Cost{Tokens: 10}, InFlight: agent.Cost{Tokens: 10}}
			for range 2 {
				if err := s.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
				if u, err := s.Use(t.Context(), "acme", "2026-03-01"); err != nil || u != want {
					t.Errorf("%+v, %v, want %+v", u, err, want)
				}
			}
			clock.Move(8 * 24 * time.Hour) // the ended run is deleted; what it has spent remains
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if u, err := s.Use(t.Context(), "acme", "2026-03-01"); err != nil || u != want {
				t.Errorf("after the retention: %+v, %v, want %+v", u, err, want)
			}
			clock.Move(401 * 24 * time.Hour)
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if u, err := s.Use(t.Context(), "acme", "2026-03-01"); err != nil || u != (account.Use{InFlight: want.InFlight}) {
				t.Errorf("after 400 days: %+v, %v", u, err)
			}
		})
	}
}
