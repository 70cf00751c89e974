package a2a

// Open returns how many feeds there are, of how many tasks, and how many streams
// are counted.
func (h *Handler) Open() (feeds, lines, streams int) {
	h.feeds.mu.Lock()
	defer h.feeds.mu.Unlock()
	for _, l := range h.feeds.lines {
		feeds += len(l.feeds)
	}
	h.seats.mu.Lock()
	defer h.seats.mu.Unlock()
	for k, n := range h.seats.taken {
		if k.ID == "" {
			streams += n
		}
	}
	return feeds, len(h.feeds.lines), streams
}

// Kept returns the size of the largest ring, and the most entries of one.
func (h *Handler) Kept() (bytes, entries int) {
	h.feeds.mu.Lock()
	defer h.feeds.mu.Unlock()
	for _, l := range h.feeds.lines {
		for _, f := range l.feeds {
			f.mu.Lock()
			bytes, entries = max(bytes, f.ring.size), max(entries, len(f.ring.entries))
			f.mu.Unlock()
		}
	}
	return bytes, entries
}
