package server_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/project"
	"github.com/agentteams/team-server/internal/server"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/tests/rig"
)

// byKeys returns the authentication by API keys.
func byKeys(keys ...*teamv1.ApiKey) *auth.Server {
	a, err := auth.New(auth.Config{Accept: &teamv1.AuthConfig{ApiKeys: keys}})
	if err != nil {
		panic(err)
	}
	return a
}

func key(name, account, secret string) *teamv1.ApiKey {
	sum := sha256.Sum256([]byte(secret))
	return &teamv1.ApiKey{Name: name, Account: account, Sha256: hex.EncodeToString(sum[:])}
}

func TestA_21_AuthMatrix(t *testing.T) {
	var owner string
	p := &probe{get: func(ctx context.Context, _ *a2av1.GetTaskRequest) (*a2av1.Task, error) {
		caller, _ := identity.CallerOf(ctx)
		owner = caller.Owner()
		return task(ctx, &a2av1.GetTaskRequest{Id: "t1"})
	}}
	target := start(t, server.Config{Handler: p, Auth: byKeys(key("ann", "", "secret-a"), key("bob", "acme", "secret-b"))})
	for _, c := range []struct{ name, key, owner string }{
		{"first key", "secret-a", "default/ann"},
		{"second key", "secret-b", "acme/bob"},
		{"no key", "", ""},
		{"unknown key", "secret-c", ""},
		{"prefix of a key", "secret-", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := target
			with.Key = c.key
			rig.Each(t, with, func(t *testing.T, client rig.Client) {
				owner = ""
				_, err := client.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
				if owner != c.owner {
					t.Errorf("owner %q, want %q", owner, c.owner)
				}
				f := rig.Fault(err)
				if c.owner == "" && (f == nil || f.Code != "Unauthenticated" || f.Reason != "UNAUTHENTICATED") {
					t.Errorf("got %v", f)
				}
				if c.owner == "" && client.Binding() != "grpc" && f.HTTP != http.StatusUnauthorized {
					t.Errorf("status %d", f.HTTP)
				}
			})
		})
	}
	t.Run("401 says how", func(t *testing.T) {
		resp, _ := request(t, http.MethodGet, target.HTTP+"/tasks/t1", "", nil)
		if got := resp.Header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
			t.Errorf("WWW-Authenticate %q", got)
		}
	})
	t.Run("two authorization headers are refused", func(t *testing.T) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, target.HTTP+"/tasks/t1", http.NoBody)
		req.Header["Authorization"] = []string{"Bearer secret-a", "Bearer secret-a"}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", resp.StatusCode)
		}
		g, _ := rig.NewGRPC(target)
		defer g.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret-a", "authorization", "Bearer secret-a")
		_, err = a2av1.NewA2AServiceClient(g.Conn).GetTask(ctx, &a2av1.GetTaskRequest{Id: "t1"})
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Code != "Unauthenticated" {
			t.Errorf("got %v", f)
		}
	})
	t.Run("unknown paths are not told to strangers", func(t *testing.T) {
		if resp, _ := request(t, http.MethodGet, target.HTTP+"/x/y/z", "", nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
}

func TestA_21_RefusedBeforeTheBody(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{}, Auth: byKeys(key("ann", "", "secret"))})
	for _, path := range []string{"/message:send", "/rpc", "/message:stream", "/team/v1/agents/a:process"} {
		t.Run(path, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(target.HTTP, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n", path)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("no answer while the body goes on: %v", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	t.Run("grpc", func(t *testing.T) {
		g, err := rig.NewGRPC(target)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
		stream, err := g.Conn.NewStream(t.Context(), desc, "/lf.a2a.v1.A2AService/SendMessage")
		if err == nil { // nothing is ever sent
			err = stream.RecvMsg(&a2av1.SendMessageResponse{})
		}
		if f := rig.Fault(rig.FromGRPC(err)); f == nil || f.Code != "Unauthenticated" || f.Reason != "UNAUTHENTICATED" {
			t.Errorf("got %v", f)
		}
	})
}

func TestA_21_T_7_OnlyLoopbackWithoutKeys(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := server.New(server.Config{Handler: &probe{}})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Serve(t.Context(), server.Listeners{HTTP: l})
	if err == nil || !strings.Contains(err.Error(), "refusing to serve on 0.0.0.0 without authentication; add server.auth, or listen on loopback behind a proxy that authenticates") {
		t.Fatalf("got %v", err)
	}
}

func TestA_03_Version(t *testing.T) {
	p := &probe{get: task}
	target := start(t, server.Config{Handler: p})
	strict := start(t, server.Config{Handler: p, Settings: settings.Of(&teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{StrictVersion: true}})})
	off := start(t, server.Config{Handler: p, Settings: settings.Of(&teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{V0_3: proto.Bool(false)}})})
	for _, c := range []struct {
		name, version string
		target        rig.Target
		ok            bool
	}{
		{"1.0", "1.0", target, true},
		{"a patch says nothing", "1.0.1", target, true},
		{"twice the same", "1.0, 1.0", target, true},
		{"two", "1.0, 0.5", target, false},
		{"missing", "-", target, true},
		{"missing, strict", "-", strict, false},
		{"A-25 0.3 where it is turned off", "0.3", off, false},
		{"0.5", "0.5", target, false},
		{"99.0", "99.0", target, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := c.target
			with.Version = c.version
			rig.Each(t, with, func(t *testing.T, client rig.Client) {
				_, err := client.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"})
				f := rig.Fault(err)
				switch {
				case c.ok && f != nil:
					t.Errorf("got %v", f)
				case !c.ok && (f == nil || f.Reason != "VERSION_NOT_SUPPORTED" || f.Domain != "a2a-protocol.org" || f.Details["supported"] != "1.0"):
					t.Errorf("got %+v", f)
				}
			})
		})
	}
	t.Run("in two headers", func(t *testing.T) {
		for second, want := range map[string]int{"1.0": http.StatusOK, "0.5": http.StatusBadRequest} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, target.HTTP+"/tasks/t1", nil)
			req.Header["A2a-Version"] = []string{"1.0", second}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("1.0 and %s: status %d", second, resp.StatusCode)
			}
		}
	})
	t.Run("as query parameter", func(t *testing.T) {
		if resp, _ := request(t, http.MethodGet, target.HTTP+"/tasks/t1?A2A-Version=0.5", "", nil); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("0.5: status %d", resp.StatusCode)
		}
		_, body := post(t, target.HTTP+"/rpc?A2A-Version=99.0", "application/json", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t1"}}`)
		if field(body, "error", "code") != float64(-32009) {
			t.Errorf("99.0 over JSON-RPC: %v", body)
		}
		if resp, _ := request(t, http.MethodGet, strict.HTTP+"/tasks/t1?A2A-Version=1.0", "", nil); resp.StatusCode != http.StatusOK {
			t.Errorf("1.0: status %d", resp.StatusCode)
		}
	})
}

// TestA_21_KeysAreNotPassedOn: what a caller has sent of itself is not in the context of its call, with which agents on other
// servers are called.
func TestA_21_KeysAreNotPassedOn(t *testing.T) {
	t.Parallel()
	var sent metadata.MD
	p := &probe{get: func(ctx context.Context, req *a2av1.GetTaskRequest) (*a2av1.Task, error) {
		sent, _ = metadata.FromOutgoingContext(ctx)
		return task(ctx, req)
	}}
	target := start(t, server.Config{Handler: p, Auth: byKeys(key("ann", "", "secret"))})
	target.Key = "secret"
	rig.Each(t, target, func(t *testing.T, c rig.Client) {
		sent = metadata.Pairs("none", "called")
		if _, err := c.Get(t.Context(), &a2av1.GetTaskRequest{Id: "t1"}); err != nil {
			t.Fatal(err)
		}
		if len(sent) != 0 {
			t.Errorf("calls to other servers would send %v", sent)
		}
	})
}

// TestA_01_ExtensionSupportRequired: with require_team_run each A2A call must activate the
// extension, over every binding; calls of the Agent service need not.
func TestA_01_ExtensionSupportRequired(t *testing.T) {
	target := start(t, server.Config{Handler: &probe{get: task}, Settings: settings.Of(&teamv1.ServerSettings{Protocol: &teamv1.ProtocolSettings{RequireTeamRun: true}})})
	knows, other := target, target
	knows.Headers = map[string]string{"a2a-extensions": "urn:other, " + project.TeamRunURI}
	other.Headers = map[string]string{"a2a-extensions": project.RoutingURI}
	get := &a2av1.GetTaskRequest{Id: "t1"}
	for name, without := range map[string]rig.Target{"none": target, "another": other} {
		t.Run(name, func(t *testing.T) {
			rig.Each(t, without, func(t *testing.T, client rig.Client) {
				_, err := client.Get(t.Context(), get)
				f := rig.Fault(err)
				if f == nil || f.Reason != "EXTENSION_SUPPORT_REQUIRED" || f.Domain != "a2a-protocol.org" || f.Code != "FailedPrecondition" ||
					f.Details["required"] != project.TeamRunURI || f.HTTP != 0 && f.HTTP != http.StatusOK && f.HTTP != http.StatusBadRequest {
					t.Errorf("got %+v", f)
				}
				_, err = rig.Collect(client.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: "t1"}, 0))
				if f := rig.Fault(err); f == nil || f.Reason != "EXTENSION_SUPPORT_REQUIRED" {
					t.Errorf("subscribe: got %+v", f)
				}
			})
		})
	}
	rig.Each(t, knows, func(t *testing.T, client rig.Client) {
		if got, err := client.Get(t.Context(), get); err != nil || got.GetId() != "t1" {
			t.Errorf("got %v, %v", got, err)
		}
	})
	if resp, body := request(t, http.MethodGet, target.HTTP+"/team/v1/agents/a", "", nil); strings.Contains(fmt.Sprint(body), "EXTENSION_SUPPORT_REQUIRED") {
		t.Errorf("Info: status %d: %s", resp.StatusCode, body)
	}
}

func TestA_01_SlowBodyIsCut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes five seconds")
	}
	target := start(t, server.Config{Handler: &probe{send: echo}})
	r, w := io.Pipe()
	defer w.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, target.HTTP+"/message:send", r)
	req.Header.Set("Content-Type", "application/json")
	go func() { _, _ = io.WriteString(w, "{") }()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
}
