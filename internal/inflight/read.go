package inflight

import "context"

// readerKey is the key of what WithReader adds to a context.
type readerKey struct{}

// WithReader returns a context in which Read calls reserve; with nil it neither reserves nor waits, as within a transaction.
func WithReader(ctx context.Context, reserve func(n int64) error) context.Context {
	return context.WithValue(ctx, readerKey{}, reserve)
}

// Read is called before a large record of n bytes is read from a store for a caller, so that what does not fit is
// refused before memory and time are spent on it. What it reserves belongs to the caller, see WithReader, and is at
// least as much as the largest record that was read. It waits for the record's turn, see Turn; end must be called when
// the record has been decoded. The error is INSUFFICIENT_RESOURCES.
func Read(ctx context.Context, n int64) (end func(), err error) {
	reserve, _ := ctx.Value(readerKey{}).(func(int64) error)
	if reserve == nil || n <= Small {
		return func() {}, nil
	}
	if err := reserve(n); err != nil {
		return nil, err
	}
	return Turn(n), nil
}
