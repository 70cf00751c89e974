package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/collab"
	"github.com/agentteams/team-server/internal/wire"
)

func (s *API) contractRoutes() []route {
	c := teamv1.NewCollaborationServiceClient(s.table.Conn())
	routes := []route{
		{"POST", contractBase + "start_collaboration", contract(s, collab.ReadStart, c.StartCollaboration, collab.RenderStart)},
		{"POST", contractBase + "get_collaboration_status", contract(s, collab.ReadStatus, c.GetCollaborationStatus, collab.RenderStatus)},
		{"POST", contractBase + "stop_collaboration", contract(s, collab.ReadStop, c.StopCollaboration, collab.RenderStop)},
	}
	if s.table.Teams != nil {
		routes = append(routes, route{"POST", contractBase + "create_team", contract(s, readTeam, teamv1.NewTeamServiceClient(s.table.Conn()).CreateTeam, collab.RenderTeam)})
	}
	return routes
}

// readTeam converts a body of create_team to a request. Unknown keys are errors here,
// because the body defines a team; the other contract calls ignore them.
func readTeam(body *structpb.Struct) (*teamv1.CreateTeamRequest, error) {
	u := &unknownKeys{fields: protoNames}
	u.check(body.AsMap(), "", (&teamv1.ContractTeam{}).ProtoReflect().Descriptor())
	if err := u.err(); err != nil {
		return nil, err
	}
	return collab.ReadTeam(body)
}

// contract returns the handler of a contract call: read converts the body to a request, and
// render converts the response to a body.
func contract[Req, Resp, Body any](s *API, read func(*structpb.Struct) (Req, error), call func(context.Context, Req, ...grpc.CallOption) (Resp, error), render func(Resp) Body) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		resp, err := func() (resp Resp, err error) {
			b, err := readAll(r.Body)
			if err != nil {
				return resp, err
			}
			body := &structpb.Struct{}
			if err := wire.Unmarshal(b, body); err != nil {
				return resp, err
			}
			req, err := read(body)
			if err != nil {
				return resp, err
			}
			return call(r.Context(), req)
		}()
		if err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		b, err := json.Marshal(render(resp))
		if err != nil {
			s.fail(w, r, wire.Status(err))
			return
		}
		_ = setPrivate(r.Context(), w, nil) // always nil
		write(w, wire.TypeJSON, private, b)
	}
}
