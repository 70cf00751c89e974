package agent

import "context"

type progressKey struct{}

// WithProgress returns a context whose Progress calls extend, and then what those of ctx call. extend may be called at
// any time and concurrently.
func WithProgress(ctx context.Context, extend func()) context.Context {
	outer, _ := ctx.Value(progressKey{}).(func())
	if outer == nil {
		return context.WithValue(ctx, progressKey{}, extend)
	}
	return context.WithValue(ctx, progressKey{}, func() { extend(); outer() })
}

// Progress tells everything that limits the time of a step in ctx that the step is making progress. Each of these steps
// has its whole time again from now on; the time limit of the run stays as it is.
func Progress(ctx context.Context) {
	if extend, ok := ctx.Value(progressKey{}).(func()); ok {
		extend()
	}
}
