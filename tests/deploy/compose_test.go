package deploy_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	compose "github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// project loads the compose file and further ones with the variables of a .env file.
func project(t *testing.T, env types.Mapping, further ...string) (*types.Project, error) {
	t.Helper()
	folder, err := filepath.Abs("../../deploy/compose")
	if err != nil {
		t.Fatal(err)
	}
	c := types.ConfigDetails{WorkingDir: folder, Environment: env}
	for _, name := range append([]string{"compose.yaml"}, further...) {
		c.ConfigFiles = append(c.ConfigFiles, types.ConfigFile{Filename: filepath.Join(folder, name)})
	}
	return compose.LoadWithContext(context.Background(), c)
}

func variables() types.Mapping {
	return types.Mapping{"TEAM_IMAGE": "team-server:latest", "POSTGRES_PASSWORD": "p4ss", "TEAM_KEY_SHA256": strings.Repeat("0", 64)}
}

func TestCompose(t *testing.T) {
	p, err := project(t, variables())
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.GetService("team-server")
	if err != nil {
		t.Fatal(err)
	}
	if !s.ReadOnly || len(s.CapDrop) == 0 || s.Ports[0].HostIP != "127.0.0.1" || s.DependsOn["postgres"].Condition != types.ServiceConditionHealthy {
		t.Errorf("%+v", s)
	}
	if url := s.Environment["TEAM_STORE"]; url == nil || *url != "postgres://team:p4ss@postgres/team?sslmode=disable" {
		t.Errorf("the store is %v", url)
	}
	for name, want := range map[string]string{"TEAM_PUBLIC_URL": "http://127.0.0.1:8080", "TEAM_PUBLIC_GRPC": "127.0.0.1:50051"} {
		if got := s.Environment[name]; got == nil || *got != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	for _, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts a file that does not exist: %v", s.Name, err)
			}
		}
	}
	file, err := os.ReadFile("../../deploy/compose/team.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s := check(t, string(file)); s.GetPublicUrl() != "http://team.example" || s.GetPublicGrpc() != "team.example:50051" {
		t.Errorf("cards name %s and %s", s.GetPublicUrl(), s.GetPublicGrpc())
	}
}

// TestCompose_Temporal: a front and a worker of the other program, with the same file and store.
func TestCompose_Temporal(t *testing.T) {
	env := variables()
	env["TEAM_TEMPORAL_IMAGE"] = "team-server-temporal:latest"
	p, err := project(t, env, "compose.temporal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]string{"team-server": "front", "worker": "worker"} {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Image != env["TEAM_TEMPORAL_IMAGE"] || s.Command[len(s.Command)-1] != role || s.DependsOn["temporal"].Condition != types.ServiceConditionHealthy {
			t.Errorf("%s: %s %v, %v", name, s.Image, s.Command, s.DependsOn)
		}
		if len(s.Volumes) != 1 || filepath.Base(s.Volumes[0].Source) != "team.temporal.yaml" || *s.Environment["TEAM_STORE"] != "postgres://team:p4ss@postgres/team?sslmode=disable" {
			t.Errorf("%s: %v, %v", name, s.Volumes, s.Environment)
		}
	}
	file, err := os.ReadFile("../../deploy/compose/team.temporal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s := check(t, string(file)); s.GetEngine().GetTemporal().GetAddress() != "temporal:7233" {
		t.Error("the file has no engine")
	}
	if _, err := project(t, variables(), "compose.temporal.yaml"); err == nil || !strings.Contains(err.Error(), "write TEAM_TEMPORAL_IMAGE into .env") {
		t.Errorf("without an image: %v", err)
	}
}

// TestCompose_Variables: what has to be written into .env is asked for by name.
func TestCompose_Variables(t *testing.T) {
	for name := range variables() {
		env := variables()
		delete(env, name)
		if _, err := project(t, env); err == nil || !strings.Contains(err.Error(), "write "+name+" into .env") {
			t.Errorf("without %s: %v", name, err)
		}
		example, err := os.ReadFile("../../deploy/compose/.env.example")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(example), "\n"+name+"=\n") {
			t.Errorf(".env.example has no line for %s", name)
		}
	}
}
