package agent

import "time"

// pause keeps steps from beginning while the run is paused. All of it is guarded
// by run.mu.
type pause struct {
	paused   bool
	since    time.Time  // start of the current pause
	past     Standstill // pauses that have ended
	stopped  bool
	heldBack bool          // who was about to begin does not any more
	resumed  int           // how often the run has been resumed
	starting int           // steps that are about to begin
	started  chan struct{} // closed when none is any more; nil when nobody waits for that
	shut     chan struct{} // closed while nothing may begin; nil when nobody looks
}

// Pause keeps every step of the run, at any depth, from beginning until Resume:
// the calls of members, models and tools, and their repetitions. It does not
// wait. What is about to begin still does: the channel is closed once it has, so that
// its start is on record before what the caller records then. A caller that cannot
// wait so long calls HoldBack. Again, it changes nothing.
//
// The timeouts of the run do not advance until Resume, see WithTimeout; those of steps
// do.
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

// PauseBegan sets the recorded time at which the pause of the run began.
func (r *Run) PauseBegan(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause.since = at
}

// Stop is a Pause that no Resume ends.
func (r *Run) Stop() (begun <-chan struct{}) { return r.close(func(p *pause) { p.stopped = true }) }

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
	r.pokeAll() // who waits for others to end may have nothing that runs
	if p.starting == 0 {
		return p.shut
	}
	if p.started == nil {
		p.started = make(chan struct{})
	}
	return p.started
}

// HoldBack keeps also what was about to begin when the run was paused from having its
// effect before Resume: its start may be on record behind the pause then.
func (r *Run) HoldBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause.heldBack = r.pause.paused || r.pause.stopped
}

// HeldBack is asked by who has called Enter right before a step has its effect, after
// its start is durable: true, and it must not have it before the run is resumed.
func (r *Run) HeldBack() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause.heldBack
}

// Resume ends a Pause and wakes every live loop. at is the recorded end of the pause. A
// second call changes nothing.
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
		r.pause.shut, r.pause.heldBack = nil, false
	}
	r.pokeAll()
}

// Paused reports whether nothing may begin: the run is paused, or stops.
func (r *Run) Paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause.paused || r.pause.stopped
}

// Resumed is how often the run has been resumed.
func (r *Run) Resumed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pause.resumed
}

// PausedSince reports whether the run is paused, or has been at any time since
// Resumed returned n: what ended meanwhile without an answer may have been held.
func (r *Run) PausedSince(n int) bool { return r.Paused() || r.Resumed() != n }

// Enter is asked before a step's start is put on record. False: the run is paused,
// and the step must not begin. Else it may, until it calls Entered; see HeldBack.
func (r *Run) Enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause.paused || r.pause.stopped {
		return false
	}
	r.pause.starting++
	return true
}

// Entered is called once after each Enter that returned true: the start is on record, or
// will not be.
func (r *Run) Entered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause.starting--
	if r.pause.starting == 0 && r.pause.started != nil {
		close(r.pause.started)
		r.pause.started = nil
	}
}

// Shutting returns a channel that is closed once the run is paused.
func (r *Run) Shutting() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause.shut == nil {
		r.pause.shut = make(chan struct{})
	}
	return r.pause.shut
}

// pokeAll wakes every live loop; the caller holds mu.
func (r *Run) pokeAll() {
	for _, l := range r.listeners {
		l.poke()
	}
}
