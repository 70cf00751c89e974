package tests

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// TestT_11_KeysWithoutRestart: a key that is made over one binding is accepted by every binding of
// two replicas with the same store, and not after it was revoked. Streams of its owner that are open
// at the other replica end with UNAUTHENTICATED. Only ADMIN may make, list and revoke keys.
func TestT_11_KeysWithoutRestart(t *testing.T) {
	t.Parallel()
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		store, _ := at.Open(t)
		other := store
		if at.Name == "postgres" { // a replica of its own; the others may be open only once
			s, err := server.OpenStore(t.Context(), at.URL, server.StoreConfig{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			other = s
		}
		admin := rig.Admin("acme", "root")
		config := server.Config{Store: store, Settings: rig.Keys(admin, rig.Key("acme", "ann"))}
		serve := func(s server.Store) rig.Target {
			c := config
			c.Store, c.Agents = s, rig.Manager(t, whichAgent(t))
			return rig.Serve(t, c)
		}
		first, second := serve(store), serve(other)
		ann := rig.Services(t, first.As("acme", "ann"))
		for i, s := range rig.Services(t, first.As("acme", "root")) {
			t.Run(s.Binding(), func(t *testing.T) {
				keys, denied := teamv1.NewKeyServiceClient(s), teamv1.NewKeyServiceClient(ann[i])
				made, err := keys.CreateKey(t.Context(), &teamv1.CreateKeyRequest{Name: "bob-" + s.Binding(), Account: "acme", Expires: timestamppb.New(time.Now().Add(time.Hour))})
				if err != nil {
					t.Fatal(err)
				}
				as := second
				as.Key = made.GetSecret()
				rig.Each(t, as, func(t *testing.T, c rig.Client) {
					for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // within seconds
						_, err := c.List(t.Context(), &a2av1.ListTasksRequest{})
						if err == nil {
							return
						}
						if time.Now().After(end) {
							t.Fatal(err)
						}
					}
				})
				ended := map[string]chan error{}
				for _, c := range rig.Clients(t, as) {
					task := send(t, c, rig.Text("asks", "m-"+s.Binding()+c.Binding(), "x")).GetId()
					begun, end := make(chan struct{}), make(chan error, 1)
					ended[c.Binding()] = end
					go func() {
						for u, err := range c.Subscribe(t.Context(), &a2av1.SubscribeToTaskRequest{Id: task}, 0) {
							if err != nil {
								end <- err
								return
							}
							if u.GetTask() != nil {
								close(begun)
							}
						}
						end <- nil
					}()
					<-begun
				}
				_, err = denied.RevokeKey(t.Context(), &teamv1.RevokeKeyRequest{Id: made.GetKey().GetId()})
				wantReason(t, err, "PERMISSION_DENIED")
				_, err = denied.ListKeys(t.Context(), &teamv1.ListKeysRequest{})
				wantReason(t, err, "PERMISSION_DENIED")
				_, err = denied.CreateKey(t.Context(), &teamv1.CreateKeyRequest{Name: "eve", Permissions: []teamv1.Permission_Value{teamv1.Permission_ADMIN}})
				wantReason(t, err, "PERMISSION_DENIED")
				began := time.Now()
				gone, err := keys.RevokeKey(t.Context(), &teamv1.RevokeKeyRequest{Id: made.GetKey().GetId()})
				if err != nil || gone.GetKey().GetRevokedBy() != "acme/root" {
					t.Fatal(gone, err)
				}
				for binding, end := range ended {
					if f := rig.Fault(<-end); f == nil || f.Code != "Unauthenticated" {
						t.Errorf("%s: the stream ended with %v", binding, f)
					}
				}
				if took := time.Since(began); took > 60*time.Second {
					t.Errorf("streams ended after %s", took)
				}
				rig.Each(t, as, func(t *testing.T, c rig.Client) {
					if _, err := c.List(t.Context(), &a2av1.ListTasksRequest{}); rig.Fault(err).Code != "Unauthenticated" {
						t.Errorf("a revoked key: %v", err)
					}
				})
				list, err := keys.ListKeys(t.Context(), &teamv1.ListKeysRequest{PageSize: 1})
				if err != nil || len(list.GetKeys()) != 1 {
					t.Errorf("%v, %v", list, err)
				}
			})
		}
	})
}
