package agent

import "context"

// MaxDepth bounds how deep agents nest, counted across servers, where a team
// sets no other limit.
const MaxDepth = 5

// Composite is an agent with members of its own.
type Composite interface {
	Agent
	// Members returns the ids of its members.
	Members() []string
}

// Moded is a Composite that knows without asking its members which media types of
// parts it takes and answers with; nil says nothing.
type Moded interface {
	Composite
	Modes() (input, output []string)
}

type depthKey struct{}

// Depth returns how many levels of nesting lie above the work of ctx.
func Depth(ctx context.Context) int {
	n, _ := ctx.Value(depthKey{}).(int)
	return n
}

// WithDepth returns a context whose work has n levels above it: a server puts
// there what a caller sent along.
func WithDepth(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, depthKey{}, n)
}

type depthLimitKey struct{}

// DepthLimit returns how many levels the work of ctx may be nested by what those
// above it have set; ok is false where nobody has.
func DepthLimit(ctx context.Context) (n int, ok bool) {
	n, ok = ctx.Value(depthLimitKey{}).(int)
	return n, ok
}

// WithDepthLimit returns a context whose work may be nested n levels, or fewer
// where somebody above has said so. Levels count from the root, across servers.
func WithDepthLimit(ctx context.Context, n int) context.Context {
	if above, ok := DepthLimit(ctx); ok && above <= n {
		return ctx
	}
	return context.WithValue(ctx, depthLimitKey{}, n)
}

// Enter returns a context one level deeper, for asking the members of id. It
// ends what asks in circles, on this server and across servers, with
// MAX_DEPTH_EXCEEDED. Ids of other servers are no identity, so it is
// the depth that counts: MaxDepth, or more where the limit of ctx allows it.
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
