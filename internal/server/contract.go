package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/types/known/structpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/collab"
	"github.com/agentteams/team-server/internal/wire"
)

// contractBase is where the calls of the contract are: those of the services, in JSON
// of another shape.
const contractBase = "/team/v1/contract/"

func isContract(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, contractBase) }

func (s *Server) contractRoutes() []route {
	c := collaborating{Server: s}
	routes := []route{
		{"POST", contractBase + "start_collaboration", contract(s, collab.ReadStart, c.StartCollaboration, collab.RenderStart)},
		{"POST", contractBase + "get_collaboration_status", contract(s, collab.ReadStatus, c.GetCollaborationStatus, collab.RenderStatus)},
		{"POST", contractBase + "stop_collaboration", contract(s, collab.ReadStop, c.StopCollaboration, collab.RenderStop)},
	}
	if s.config.Teams != nil {
		routes = append(routes, route{"POST", contractBase + "create_team", contract(s, readTeam, s.teams().CreateTeam, collab.RenderTeam)})
	}
	return routes
}

// readTeam makes the request of a body of create_team. It defines a team: in the bodies
// of the other calls unknown keys are left out.
func readTeam(body *structpb.Struct) (*teamv1.CreateTeamRequest, error) {
	u := &unknown{fields: protoNames}
	u.in(body.AsMap(), "", (&teamv1.ContractTeam{}).ProtoReflect().Descriptor())
	if err := u.err(); err != nil {
		return nil, err
	}
	return collab.ReadTeam(body)
}

// contract serves a call: read makes its request of a body, render the body of its
// answer.
func contract[Req, Resp, Body any](s *Server, read func(*structpb.Struct) (Req, error), call func(context.Context, Req) (Resp, error), render func(Resp) Body) runtime.HandlerFunc {
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
		_ = private(r.Context(), w, nil) // it never fails
		w.Header().Set("Content-Type", wire.TypeJSON)
		_, _ = w.Write(b) // the caller may have left
	}
}
