package halt

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/halt/inforce"
	"github.com/agentteams/team-server/internal/logs"
)

// pollEvery is how often a Keeper looks for changes, in case a notification was lost.
const pollEvery = time.Second

// Keeper applies the halts in the store to a replica, and acknowledges them. It is safe for concurrent
// use.
type Keeper struct {
	store   Store
	halts   *inforce.Halts
	replica string
	wake    func()
	log     *zap.Logger

	busy    chan struct{}    // semaphore: held while refreshing
	known   int64            // the version that is acknowledged; guarded by busy
	stopped map[int64][]Task // what halts have stopped and that is not on record yet, by the version of the halt; guarded by busy
}

// NewKeeper returns a keeper that applies the halts in a store to halts, in the name of a replica. wake
// is called when runs may have become due; it must not block. log may not be nil.
func NewKeeper(store Store, halts *inforce.Halts, replica string, wake func(), log *zap.Logger) *Keeper {
	return &Keeper{store: store, halts: halts, replica: replica, wake: wake, log: log, busy: make(chan struct{}, 1), stopped: map[int64][]Task{}}
}

// Run applies changes until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	wake, stop := k.store.WatchHalts()
	defer stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var failing logs.Condition
	for {
		select {
		case <-wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := k.Refresh(ctx); ctx.Err() == nil {
			failing.Report(k.log, "cannot read the halts from the store", "the halts can be read again", err)
		}
	}
}

// Refresh applies the halts in the store. When it returns nil, no work is about to begin that they
// cover, and that is on record.
func (k *Keeper) Refresh(ctx context.Context) error {
	select {
	case k.busy <- struct{}{}:
		defer func() { <-k.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	version, err := k.store.HaltVersion(ctx)
	if err != nil || version == k.known {
		return err
	}
	if version != k.halts.Version() {
		snap, err := k.store.Halts(ctx)
		if err != nil {
			return err
		}
		for _, s := range k.halts.Set(snap.Version, snap.Halts) {
			k.stopped[s.Halt] = append(k.stopped[s.Halt], Task{Owner: s.Owner, ID: s.Task})
		}
		k.wake()
	}
	if err := k.halts.Settle(ctx); err != nil {
		return err
	}
	version = k.halts.Version()
	if err := k.store.AcknowledgeHalts(ctx, k.replica, version, k.stopped); err != nil {
		return err
	}
	k.known = version
	clear(k.stopped)
	k.wake() // the replica may claim runs again
	return nil
}
