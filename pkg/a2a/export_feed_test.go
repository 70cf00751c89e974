package a2a

// Open returns how many feeds there are, of how many tasks, and how many streams
// are counted.
func (h *Handler) Open() (feeds, lines, streams int) {
	h.seats.mu.Lock()
	defer h.seats.mu.Unlock()
	for k, n := range h.seats.taken {
		if k.ID == "" {
			streams += n
		}
	}
	st := h.feeds.Stats()
	return st.Feeds, st.Keys, streams
}

// Kept returns the size of the largest ring, and the most entries of one.
func (h *Handler) Kept() (bytes, entries int) {
	st := h.feeds.Stats()
	return st.Bytes, st.Entries
}
