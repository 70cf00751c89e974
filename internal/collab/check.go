package collab

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits of the texts in a request: task description and expected output in characters,
// context in bytes.
const (
	minTask, maxTask = 10, 1000
	maxExpected      = 10_000
	maxContext       = 64 << 10
)

// retryAfter is the delay after which callers should try again.
const retryAfter = 5 * time.Second

// faults collects the violations of a request.
type faults struct{ a2aerror.Faults }

// check validates a request to start a collaboration. Field names in the error are the JSON
// names; see contractName for those of the contract.
func check(req *teamv1.StartCollaborationRequest) error {
	var f faults
	if req.GetTeamId() == "" {
		f.Add("teamId", "is required")
	}
	switch n := utf8.RuneCountInString(req.GetTaskDescription()); {
	case n < minTask || n > maxTask:
		f.Add("taskDescription", "has %d characters; it must have %d to %d", n, minTask, maxTask)
	case strings.TrimSpace(req.GetTaskDescription()) == "":
		f.Add("taskDescription", "is blank; it must describe the task")
	}
	switch n := utf8.RuneCountInString(req.GetExpectedOutput()); {
	case strings.TrimSpace(req.GetExpectedOutput()) == "":
		f.Add("expectedOutput", "is required; it must describe the result")
	case n > maxExpected:
		f.Add("expectedOutput", "has %d characters; it must have at most %d", n, maxExpected)
	}
	if n := proto.Size(req.GetContext()); n > maxContext {
		f.Add("context", "has %d bytes; it must have at most %d", n, maxContext)
	}
	f.constraints(req.GetConstraints())
	return f.Err()
}

// checkID validates the ID of a collaboration.
func checkID(id string) error {
	if id == "" {
		return a2aerror.Invalid(agent.Violation{Field: "collaborationId", Description: "is required"})
	}
	return nil
}

func (f *faults) constraints(c *teamv1.CollaborationConstraints) {
	if d := c.GetMaxDuration(); d != nil && d.AsDuration() <= 0 {
		f.Add("constraints.maxDuration", "must be more than 0")
	}
	if q := c.GetQualityThreshold(); math.IsNaN(q) || q < 0 || q > 1 {
		f.Add("constraints.qualityThreshold", "must be 0 to 1")
	}
	for _, key := range slices.Sorted(maps.Keys(c.GetResourceLimits())) {
		field, n := resourceLimits+key, c.GetResourceLimits()[key]
		switch _, is32 := resources[key]; {
		case !is32 && key != "max_tokens":
			f.Add(field, "is unknown; use max_tokens, max_delegations or max_parallel")
		case n < 1:
			f.Add(field, "is %d; it must be 1 or more", n)
		case is32 && n > math.MaxInt32:
			f.Add(field, "is %d; it must be at most %d", n, math.MaxInt32)
		}
	}
}

// resourceLimits is the path of the limits in a request.
const resourceLimits = "constraints.resourceLimits."

// resources maps the names of limits with 32 bits to their setters. max_tokens has 64 bits.
var resources = map[string]func(*teamv1.Limits, *int32){
	"max_delegations": func(l *teamv1.Limits, n *int32) { l.MaxDelegations = n },
	"max_parallel":    func(l *teamv1.Limits, n *int32) { l.MaxParallel = n },
}

// limits returns the resource limits of a request, nil if it has none.
func limits(req *teamv1.StartCollaborationRequest) *teamv1.Limits {
	given := req.GetConstraints().GetResourceLimits()
	if len(given) == 0 {
		return nil
	}
	l := &teamv1.Limits{}
	for key, n := range given {
		if set := resources[key]; set != nil {
			set(l, proto.Int32(int32(n))) //nolint:gosec // checked
		} else {
			l.MaxTokens = &n
		}
	}
	return l
}
