package a2a

// Open returns the number of feeds, the number of tasks that they belong to, and the number of
// streams that count against the limits.
func (h *Handler) Open() (feeds, lines, streams int) {
	h.streams.mu.Lock()
	defer h.streams.mu.Unlock()
	for k, n := range h.streams.open {
		if k.ID == "" {
			streams += n
		}
	}
	st := h.feeds.Stats()
	return st.Feeds, st.Keys, streams
}

// Kept returns the size in bytes of the largest ring, and the maximum number of entries of a ring.
func (h *Handler) Kept() (bytes, entries int) {
	st := h.feeds.Stats()
	return st.Bytes, st.Entries
}
