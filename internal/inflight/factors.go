package inflight

// How many bytes of memory are counted for one byte of what is sent, received or recorded. They are estimates,
// made from heap profiles of a server that worked on 100 messages of 1.9 MB, see docs/limits.md.
const (
	// OfRequest is for the body of a request: the body itself, the message decoded from it, and the event
	// that records it, which is encoded, written, and read again for the run and for the caller.
	OfRequest = 6
	// OfAnswer is for an answer, in its size as Protocol Buffers: what was read from the store, the answer, and
	// its encoding.
	OfAnswer = 3
	// OfUpdate is for an update of a stream that is encoded for one reader: the copy and its encoding.
	OfUpdate = 2
	// OfFeed is for the events of a task that has readers: its state and what of it was encoded.
	OfFeed = 2
	// OfRun is for the recorded events of a run: the events and what is written of them.
	OfRun = 2
	// OfRecord is for an event while it is recorded: its encoding, what the store writes, and the task as of its end.
	OfRecord = 6
	// OfCall is for the content of a request to a model, a tool or another agent: the prompt, its encoding as
	// JSON, and the escaped copy of that which is sent.
	OfCall = 4
)

// Small is the size up to which an answer or update is not counted: its memory is that of the call itself.
const Small = 64 << 10
