package agent

// gate keeps steps from beginning while the run is paused. All of it is guarded
// by run.mu.
type gate struct {
	paused   bool
	stopped  bool
	resumed  int           // how often the run has been resumed
	starting int           // steps that are about to begin
	started  chan struct{} // closed when none is any more; nil when nobody waits for that
	shut     chan struct{} // closed while the gate is shut; nil when nobody looks
}

// Pause keeps every step of the run, at any depth, from beginning until Resume:
// the calls of members, models and tools, and their repetitions (C-15). What is
// about to begin does so before Pause returns, so that its start is on record
// before what the caller records next. Again, it changes nothing.
func (r *Run) Pause() { r.close(func(g *gate) { g.paused = true }) }

// Stop is a Pause that no Resume ends.
func (r *Run) Stop() { r.close(func(g *gate) { g.stopped = true }) }

func (r *Run) close(change func(*gate)) {
	r.mu.Lock()
	change(&r.gate)
	if r.gate.shut == nil {
		r.gate.shut = make(chan struct{})
	}
	select {
	case <-r.gate.shut:
	default:
		close(r.gate.shut)
	}
	r.pokeAll() // who waits for others to end may have nothing that runs
	var started chan struct{}
	if r.gate.starting > 0 {
		if r.gate.started == nil {
			r.gate.started = make(chan struct{})
		}
		started = r.gate.started
	}
	r.mu.Unlock()
	if started != nil {
		<-started
	}
}

// Resume ends a Pause and wakes every live loop. Again, it changes nothing.
func (r *Run) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gate.paused {
		return
	}
	r.gate.paused = false
	r.gate.resumed++
	if !r.gate.stopped {
		r.gate.shut = nil
	}
	r.pokeAll()
}

// Paused reports whether nothing may begin: the run is paused, or stops.
func (r *Run) Paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate.paused || r.gate.stopped
}

// Resumed is how often the run has been resumed.
func (r *Run) Resumed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gate.resumed
}

// PausedSince reports whether the run is paused, or has been at any time since
// Resumed returned n: what ended meanwhile without an answer may have been held.
func (r *Run) PausedSince(n int) bool { return r.Paused() || r.Resumed() != n }

// Enter is asked before a step's start is put on record. False: the run is paused,
// and the step must not begin. Else it may, until it calls begun, which must not
// wait for anybody who waits for Pause.
func (r *Run) Enter() (begun func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate.paused || r.gate.stopped {
		return nil, false
	}
	r.gate.starting++
	return r.leave, true
}

func (r *Run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate.starting--
	if r.gate.starting == 0 && r.gate.started != nil {
		close(r.gate.started)
		r.gate.started = nil
	}
}

// Shutting returns a channel that is closed once the run is paused.
func (r *Run) Shutting() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate.shut == nil {
		r.gate.shut = make(chan struct{})
	}
	return r.gate.shut
}

// pokeAll wakes every live loop; the caller holds mu.
func (r *Run) pokeAll() {
	for _, l := range r.listeners {
		l.poke()
	}
}
