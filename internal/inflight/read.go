package inflight

import "context"

// readerKey is the key of what WithReader adds to a context.
type readerKey struct{}

// WithReader returns a context in which Read calls reserve; nil reserves nothing.
func WithReader(ctx context.Context, reserve func(n int64) error) context.Context {
	return context.WithValue(ctx, readerKey{}, reserve)
}

// Read is called before a large record of n bytes is read from a store for a caller, so that what does not fit is
// refused before memory and time are spent on it. What it reserves belongs to the caller, see WithReader, and is at
// least as much as the largest record that was read. The error is INSUFFICIENT_RESOURCES.
func Read(ctx context.Context, n int64) error {
	reserve, _ := ctx.Value(readerKey{}).(func(int64) error)
	if reserve == nil || n <= Small {
		return nil
	}
	return reserve(n)
}
