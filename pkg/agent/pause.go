package agent

import (
	"slices"
	"time"
)

// pause is the part of a Run that prevents steps from beginning while the run is paused or
// stopped. All fields are guarded by run.mu.
type pause struct {
	paused        bool
	since         time.Time // start of the current pause; valid while paused is set
	past          Pauses    // the pauses that have ended
	stopped       bool
	startsBlocked bool          // steps that have entered must not take effect either; see BlockStarts
	resumed       int           // number of calls of Resume that ended a pause
	starting      int           // steps between Enter and Entered
	started       chan struct{} // closed when starting reaches 0; nil if nothing waits for that
	shut          chan struct{} // closed while no step may begin; created on first use
}

// Pause prevents all steps of the run, at any depth, from beginning until Resume is called: calls
// of members, models and tools, and their retries. Running steps continue. The driver calls Pause
// when it has been asked to pause the run, before it records that.
//
// Pause does not block. Steps that have called Enter already still begin; begun is closed once
// they all have called Entered, so that their starts are recorded before anything that the caller
// records after that. A caller that does not want to wait that long calls BlockStarts. If the run is
// paused already, Pause changes nothing.
//
// Timeouts created with WithTimeout do not advance until Resume is called; the timeouts of single
// steps do.
func (r *Run) Pause() (begun <-chan struct{}) {
	now := r.Now()
	return r.close(func(p *pause) {
		if p.paused {
			return
		}
		p.paused, p.since = true, now
		for t := range r.timeouts {
			t.stop()
		}
	})
}

// PauseBegan sets the time at which the current pause began to the recorded one, in place of the
// time at which Pause was called.
func (r *Run) PauseBegan(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause.since = at
}

// Stop is like Pause, but Resume does not end it, and timeouts keep advancing.
func (r *Run) Stop() (begun <-chan struct{}) { return r.close(func(p *pause) { p.stopped = true }) }

// close changes the pause and makes it take effect. It returns a channel that is closed once all
// steps that have entered have begun.
func (r *Run) close(change func(*pause)) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.pause
	change(p)
	if p.shut == nil {
		p.shut = make(chan struct{})
	}
	select {
	case <-p.shut:
	default:
		close(p.shut)
	}
	r.pokeAll() // a loop that waits for a step to end may wait for one that will not begin
	if p.starting == 0 {
		return p.shut
	}
	if p.started == nil {
		p.started = make(chan struct{})
	}
	return p.started
}

// BlockStarts makes StartsBlocked return true until the run is resumed, for steps that had called Enter
// when the run was paused. Their starts may be recorded after the pause, so they must not take
// effect. It does nothing if the run is neither paused nor stopped.
func (r *Run) BlockStarts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause.startsBlocked = r.pause.paused || r.pause.stopped
}

// StartsBlocked reports whether BlockStarts is in effect. A step for which Enter returned true calls it
// once its start is durable, right before it takes effect. If the result is true, the step must
// wait until the run is resumed.
func (r *Run) StartsBlocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause.startsBlocked
}

// Resume ends a pause, lets timeouts advance again and wakes all loops. The time at is the
// recorded end of the pause. If the run is not paused, Resume does nothing.
func (r *Run) Resume(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pause.paused {
		return
	}
	r.pause.paused = false
	r.pause.past.Add(r.pause.since, at)
	for t := range r.timeouts {
		t.start()
	}
	r.pause.resumed++
	if !r.pause.stopped {
		r.pause.shut, r.pause.startsBlocked = nil, false
	}
	r.pokeAll()
}

// Paused reports whether the run is paused or stopped, so that no step may begin.
func (r *Run) Paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause.paused || r.pause.stopped
}

// Resumed returns how often the run has been resumed.
func (r *Run) Resumed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause.resumed
}

// PausedSince reports whether the run is paused, or was at any time since Resumed returned n. If
// so, a call that ended without an answer in this time may have been interrupted by the pause.
func (r *Run) PausedSince(n int) bool { return r.Paused() || r.Resumed() != n }

// Enter must be called before the start of a step is recorded. If it returns false, the run is
// paused or stopped and the step must not begin. If it returns true, the step may begin, and the
// caller must call Entered once its start is durable or has failed; see also StartsBlocked.
func (r *Run) Enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause.paused || r.pause.stopped {
		return false
	}
	r.pause.starting++
	return true
}

// Entered must be called once for each call of Enter that returned true, when the start of the
// step is durable or will not be recorded.
func (r *Run) Entered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause.starting--
	if r.pause.starting == 0 && r.pause.started != nil {
		close(r.pause.started)
		r.pause.started = nil
	}
}

// PauseSignal returns a channel that is closed when the run is paused or stopped. After Resume,
// callers must call PauseSignal again for the next pause.
func (r *Run) PauseSignal() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause.shut == nil {
		r.pause.shut = make(chan struct{})
	}
	return r.pause.shut
}

// pokeAll wakes all registered loops. The caller holds r.mu.
func (r *Run) pokeAll() {
	for _, l := range r.listeners {
		l.poke()
	}
}

// Pauses is a list of periods in which a clock did not advance. The zero value is empty. It
// is not safe for concurrent use.
type Pauses struct{ spans []span }

// span is the time from one point to another.
type span struct{ from, to time.Time }

// Add adds the period between from and to. It ignores a period that is empty or negative.
func (s *Pauses) Add(from, to time.Time) {
	if to.After(from) {
		s.spans = append(s.spans, span{from, to})
	}
}

// PausedFor returns for how long a clock that was started at start has not advanced until now: the
// periods in s, and the pauses of the run. Time in which periods overlap counts once.
func (r *Run) PausedFor(s *Pauses, start, now time.Time) time.Duration {
	r.mu.Lock()
	spans := slices.Concat(s.spans, r.pause.past.spans)
	if r.pause.paused {
		spans = append(spans, span{r.pause.since, now})
	}
	r.mu.Unlock()
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var total time.Duration
	upTo := start
	for _, one := range spans {
		if one.from.Before(upTo) {
			one.from = upTo
		}
		if one.to.After(one.from) {
			total += one.to.Sub(one.from)
			upTo = one.to
		}
	}
	return total
}
