// Package agent defines the contracts that all other packages build on. An author needs five types:
//
//   - [Agent] answers messages: a Go function (see [TextFunc] and [Func]), a model with tools, an agent
//     on another server, or a team of agents. [Reply] calls one without a server.
//   - [Run] is what all that works for one task shares. It travels in the context; see [From].
//   - [Model] is a model of a provider, of which an agent asks turns.
//   - [Tool] is what a model may call.
//   - [Error] is an error that callers see, with a reason that docs/errors.md lists.
//
// The other types are optional interfaces of these, and what their methods take and return.
package agent

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// Agent is anything that can answer a message. Users of this module implement it to add their own
// agents; teams, the task handler and the Agent service call it. All methods must be safe for
// concurrent use.
type Agent interface {
	// Info returns the agent's description: its id, name, skills and media types. It may call
	// other servers and must return when ctx ends. Callers share the result and must not modify
	// it.
	Info(ctx context.Context) (*teamv1.AgentInfo, error)

	// Process works on one call and yields the events of the work. It is called by the driver of
	// a run, or by the team whose member the agent is; "the caller" below is either of them.
	//
	// req.Recorded holds the events that this same call has already recorded, in order, for its
	// own scope and all scopes below it, including the answers to its questions. It is empty on
	// the first call. Process yields only the events that follow those in req.Recorded. Events
	// that the caller records about the call itself (Accepted, Started, Retried, Waiting, Ended
	// and Claimed) are not included. An agent that ignores req.Recorded starts from the beginning
	// after a crash.
	//
	// If yield returns true, the event has been added to the journal, and its Seq and Time are
	// set. It is not durable yet: an agent calls Commit before it has an effect outside of the
	// process, such as a request to another server.
	//
	// The sequence ends in one of three ways. It yields a Reply event last. It yields an error
	// last, preferably an *Error; any other error reaches users as INTERNAL without its text. Or
	// it yields neither, after an Asked event (the agent waits for an answer) or because the run
	// is paused; the agent is then called again later, with what it yielded in req.Recorded.
	//
	// The sequence must stop when the caller breaks out of the loop and when ctx ends, and must
	// leave no goroutines behind. The cause of ctx decides what may still be yielded: nothing
	// after ErrShutdown, ErrFenced or a break; after ErrCanceled or a timeout only the Ended
	// events of steps that are still open.
	Process(ctx context.Context, req *teamv1.ProcessRequest) iter.Seq2[*teamv1.Event, error]

	// HealthCheck reports the health of the agent and, for a team, of each member. An agent that
	// does not work is a Health whose Healthy is false; an error means that the check itself
	// could not be made.
	HealthCheck(ctx context.Context) (*teamv1.Health, error)
}

// Describer is an optional interface of an Agent that can return its Info without calling other
// servers. A team asks such a member for KnownInfo and reuses what it has derived from the Info
// as long as the pointer is the same; it asks other members for Info each time.
type Describer interface {
	Agent
	// KnownInfo returns what Info would return, without blocking. It returns the same pointer as
	// long as the description is unchanged, so that callers can compare pointers. It returns nil
	// if the description is not known without a call of Info. Callers must not modify the result.
	KnownInfo() *teamv1.AgentInfo
}

// Composite is an optional interface of an Agent that has members, such as a team.
type Composite interface {
	Agent
	// Members returns the ids of the members.
	Members() []string
}

// Moded is an optional interface of a Composite that knows, without calling its members, which
// media types it accepts and produces.
type Moded interface {
	Composite
	// Modes returns the id of the agent and its media types; other fields are not set.
	Modes() *teamv1.AgentInfo
}

// IDPattern is the regular expression for the id of an agent or team. ValidID also rejects
// reserved words.
const IDPattern = `[a-z0-9][a-z0-9_-]{0,62}`

// idRegexp matches a whole id.
var idRegexp = regexp.MustCompile(`^` + IDPattern + `$`)

// reserved holds words that are path segments of the server's own URLs and therefore cannot be
// ids.
var reserved = map[string]bool{
	"tasks": true, "rpc": true, "v1": true, "message": true, "extendedagentcard": true,
	"healthz": true, "readyz": true, "metrics": true, "docs": true, "assets": true,
}

// ValidID reports whether id matches IDPattern and is not a reserved word.
func ValidID(id string) bool { return idRegexp.MatchString(id) && !reserved[id] }

// KeyOf tells an agent or a team from those of other accounts that have had the same id. account is the one
// that has made it by the API, empty for those of the configuration file. The key is no id.
func KeyOf(account, id string) string {
	if account == "" {
		return id
	}
	return account + ":" + id
}

// IDOf returns the id in a key; see KeyOf.
func IDOf(key string) string { return key[strings.IndexByte(key, ':')+1:] }

// Healthy returns the Health of a working agent without members.
func Healthy() *teamv1.Health { return &teamv1.Health{Healthy: true, Usable: true} }

// Unhealthy returns the Health of an agent that does not work. The detail is the reason, for
// people.
func Unhealthy(detail string) *teamv1.Health { return &teamv1.Health{Detail: detail} }

// PublicSkills returns the skills without their instructions, which only the agent's own model
// may see. The skills themselves are not changed.
func PublicSkills(skills []*teamv1.Skill) []*teamv1.Skill {
	out := slices.Clone(skills)
	for i, s := range out {
		if s.GetInstructions() != "" {
			out[i] = proto.CloneOf(s)
			out[i].Instructions = ""
		}
	}
	return out
}
