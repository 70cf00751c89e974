package agent

import "context"

// MaxDepth is the default maximum depth of nesting: how many levels of teams may lie above an
// agent, counted across servers.
const MaxDepth = 5

type depthKey struct{}

// Depth returns the number of nesting levels above the work of ctx: 0 for the root agent, 1 for
// its members, and so on, counted across servers.
func Depth(ctx context.Context) int {
	n, _ := ctx.Value(depthKey{}).(int)
	return n
}

// WithDepth returns a context whose work is n levels deep. Servers call it with the depth that a
// caller sent.
func WithDepth(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, depthKey{}, n)
}

type depthLimitKey struct{}

// DepthLimit returns the smallest depth limit set by a team above the work of ctx. ok is false if
// none is set.
func DepthLimit(ctx context.Context) (n int, ok bool) {
	n, ok = ctx.Value(depthLimitKey{}).(int)
	return n, ok
}

// WithDepthLimit returns a context whose work may be nested at most n levels deep, or fewer if
// ctx has a smaller limit. Levels are counted from the root, across servers.
func WithDepthLimit(ctx context.Context, n int) context.Context {
	if above, ok := DepthLimit(ctx); ok && above <= n {
		return ctx
	}
	return context.WithValue(ctx, depthLimitKey{}, n)
}

// Enter returns a context one level deeper, in which a composite agent with this id calls its
// members. It returns the error MAX_DEPTH_EXCEEDED if that exceeds MaxDepth, or the limit of ctx
// if that is greater. It thereby also ends cycles of agents that call each other, on this server
// or across servers: an id does not identify an agent on another server, so the depth has to do.
func Enter(ctx context.Context, id string) (context.Context, error) {
	n, most := Depth(ctx)+1, MaxDepth
	if limit, ok := DepthLimit(ctx); ok {
		most = max(most, limit)
	}
	if n > most {
		return nil, Errorf(CodeFailedPrecondition, ReasonMaxDepth,
			"agent %q is nested deeper than %d levels; teams probably contain each other: break the circle by removing one member", id, most)
	}
	return WithDepth(ctx, n), nil
}
