package collab

import (
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// reader reads the fields of the JSON body of a contract call (docs/collaborations.md) and
// collects faults for values of the wrong type. It ignores unknown keys and treats null like
// a missing key.
type reader struct {
	body   *structpb.Struct
	at     string // path of the body
	faults *faults
}

func newReader(body *structpb.Struct) reader { return reader{body: body, faults: &faults{}} }

func (r reader) value(name string) *structpb.Value {
	v := r.body.GetFields()[name]
	if _, null := v.GetKind().(*structpb.Value_NullValue); null {
		return nil
	}
	return v
}

func (r reader) fault(name, format string, args ...any) { r.faults.Add(r.at+name, format, args...) }

func (r reader) text(name string) string {
	v := r.value(name)
	if _, ok := v.GetKind().(*structpb.Value_StringValue); v != nil && !ok {
		r.fault(name, "must be text")
	}
	return v.GetStringValue()
}

func (r reader) flag(name string) *bool {
	v := r.value(name)
	if v == nil {
		return nil
	}
	if _, ok := v.GetKind().(*structpb.Value_BoolValue); !ok {
		r.fault(name, "must be true or false")
	}
	return proto.Bool(v.GetBoolValue())
}

func (r reader) number(name string) *float64 {
	v := r.value(name)
	if v == nil {
		return nil
	}
	if _, ok := v.GetKind().(*structpb.Value_NumberValue); !ok {
		r.fault(name, "must be a number")
		return nil
	}
	return proto.Float64(v.GetNumberValue())
}

// whole returns a 32-bit integer, nil if it is missing or invalid.
func (r reader) whole(name string) *int32 {
	n := r.number(name)
	if n == nil {
		return nil
	}
	switch {
	case *n != math.Trunc(*n):
		r.fault(name, "must be a whole number")
		return nil
	case math.Abs(*n) > math.MaxInt32:
		r.fault(name, "must be at most %d", math.MaxInt32)
		return nil
	}
	return proto.Int32(int32(*n))
}

func (r reader) object(name string) reader {
	v := r.value(name)
	if _, ok := v.GetKind().(*structpb.Value_StructValue); v != nil && !ok {
		r.fault(name, "must be an object")
	}
	return reader{body: v.GetStructValue(), at: r.at + name + ".", faults: r.faults}
}

func (r reader) list(name string) []*structpb.Value {
	v := r.value(name)
	if _, ok := v.GetKind().(*structpb.Value_ListValue); v != nil && !ok {
		r.fault(name, "must be a list")
	}
	return v.GetListValue().GetValues()
}

// with returns the violations that the reader found, and those of err for other fields,
// under the field names of the contract.
func (r reader) with(err error) error {
	var more *a2aerror.Error
	if errors.As(err, &more) {
		for _, v := range more.Violations {
			v.Field = contractName(v.Field)
			if !slices.ContainsFunc(r.faults.Faults, func(f agent.Violation) bool { return f.Field == v.Field }) {
				r.faults.Faults = append(r.faults.Faults, v)
			}
		}
	}
	return r.faults.Err()
}

// contractName converts a JSON field name of a request to its name in the contract. The
// keys of limits remain as the caller sent them.
func contractName(field string) string {
	if limit, ok := strings.CutPrefix(field, resourceLimits); ok {
		return "constraints.resource_limits." + limit
	}
	return capital.ReplaceAllStringFunc(field, func(c string) string { return "_" + strings.ToLower(c) })
}

var capital = regexp.MustCompile(`[A-Z]`)

// ReadTeam converts a body of create_team to a request. The error is INVALID_TEAM_CONFIG.
func ReadTeam(body *structpb.Struct) (*teamv1.CreateTeamRequest, error) {
	r := newReader(body)
	team := &teamv1.ContractTeam{TeamName: r.text("team_name"), TeamType: r.text("team_type")}
	for i, v := range r.list("agent_roles") {
		at := reader{body: v.GetStructValue(), at: "agent_roles[" + strconv.Itoa(i) + "].", faults: r.faults}
		role := &teamv1.ContractRole{RoleName: at.text("role_name")}
		if c := at.object("agent_config"); c.body != nil {
			role.AgentConfig = &teamv1.ContractAgent{Model: c.text("model"), Instructions: c.text("instructions")}
			for j, tool := range c.list("tools") {
				if _, ok := tool.GetKind().(*structpb.Value_StringValue); !ok {
					c.fault("tools["+strconv.Itoa(j)+"]", "must be text")
				}
				role.AgentConfig.Tools = append(role.AgentConfig.Tools, tool.GetStringValue())
			}
		}
		team.AgentRoles = append(team.AgentRoles, role)
	}
	w := r.object("workflow_config")
	team.WorkflowConfig = &teamv1.ContractWorkflow{Type: w.text("type"), MaxIterations: w.whole("max_iterations"), TimeoutMinutes: w.whole("timeout_minutes")}
	if err := r.faults.Err(); err != nil {
		var bad *a2aerror.Error
		errors.As(err, &bad)
		bad.Reason = agent.ReasonInvalidTeamConfig
		return nil, bad
	}
	return &teamv1.CreateTeamRequest{Form: &teamv1.CreateTeamRequest_Contract{Contract: team}}, nil
}

// ReadStart converts a body of start_collaboration to a request.
func ReadStart(body *structpb.Struct) (*teamv1.StartCollaborationRequest, error) {
	r := newReader(body)
	req := &teamv1.StartCollaborationRequest{
		TeamId: r.text("team_id"), TaskDescription: r.text("task_description"), ExpectedOutput: r.text("expected_output"), Context: r.object("context").body,
	}
	if c := r.object("constraints"); c.body != nil {
		req.Constraints = &teamv1.CollaborationConstraints{QualityThreshold: c.number("quality_threshold")}
		if n := c.whole("max_duration_minutes"); n != nil && *n < 1 {
			c.fault("max_duration_minutes", "is %d; it must be 1 or more", *n)
		} else if n != nil {
			req.Constraints.MaxDuration = &durationpb.Duration{Seconds: 60 * int64(*n)} // a time.Duration would overflow after 292 years
		}
		limits := c.object("resource_limits")
		for _, name := range slices.Sorted(maps.Keys(limits.body.GetFields())) {
			if n := limits.number(name); n != nil && *n == math.Trunc(*n) && math.Abs(*n) < 1<<53 {
				if req.Constraints.ResourceLimits == nil {
					req.Constraints.ResourceLimits = map[string]int64{}
				}
				req.Constraints.ResourceLimits[name] = int64(*n)
			} else if n != nil {
				limits.fault(name, "must be a whole number")
			}
		}
	}
	return req, r.with(check(req))
}

// ReadStatus converts a body of get_collaboration_status to a request.
func ReadStatus(body *structpb.Struct) (*teamv1.GetCollaborationStatusRequest, error) {
	r := newReader(body)
	req := &teamv1.GetCollaborationStatusRequest{CollaborationId: r.text("collaboration_id")}
	if details := r.flag("include_details"); details != nil {
		req.IncludeDetails = *details
	}
	return req, r.with(checkID(req.GetCollaborationId()))
}

// ReadStop converts a body of stop_collaboration to a request.
func ReadStop(body *structpb.Struct) (*teamv1.StopCollaborationRequest, error) {
	r := newReader(body)
	req := &teamv1.StopCollaborationRequest{CollaborationId: r.text("collaboration_id"), SavePartial: r.flag("save_partial")}
	if force := r.flag("force_stop"); force != nil {
		req.ForceStop = *force
	}
	return req, r.with(checkID(req.GetCollaborationId()))
}

// failureText returns an error as one text, "REASON: message", because the contract has only
// one field for it. It returns nil if e is nil.
func failureText(e *teamv1.Error) *string {
	if e == nil {
		return nil
	}
	text := strings.TrimSuffix(e.GetReason()+": "+e.GetMessage(), ": ")
	return &text
}
