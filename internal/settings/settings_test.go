package settings_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
)

// TestDefaultsAreDocumented: the comment of a setting in config.proto, which the schema for editors shows, names the default
// that the definition declares.
func TestDefaultsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../proto/team/v1/config.proto")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`((?:  // [^\n]*\n)+)  [^\n]*\(default_value\) = "([^"]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(declared) < 15 {
		t.Fatalf("found %d defaults", len(declared))
	}
	for _, d := range declared {
		if !strings.Contains(d[1], " "+d[2]+".") {
			t.Errorf("the comment does not name the default %s:\n%s", d[2], d[1])
		}
	}
}

// TestDefaults: what is not set has its default, what is set stays, also if it is the zero value, and the settings that are
// given are not modified.
func TestDefaults(t *testing.T) {
	given := &teamv1.ServerSettings{
		Streams: &teamv1.StreamSettings{PerTask: proto.Int32(3)}, Protocol: &teamv1.ProtocolSettings{V0_3: proto.Bool(false)},
		Auth: &teamv1.AuthConfig{Jwt: []*teamv1.JwtIssuer{{Name: "a"}, {Name: "b", Leeway: durationpb.New(0)}}},
	}
	before := proto.CloneOf(given)
	now := settings.Of(given).Load()
	for name, ok := range map[string]bool{
		"http": now.GetHttp() == "127.0.0.1:8080", "retention": now.GetRetention().AsDuration() == 7*24*time.Hour, "push": now.GetPush().GetEnabled(),
		"max_connections": now.GetLimits().GetMaxConnections() == 10_000, "max_upload_bytes": now.GetLimits().GetMaxUploadBytes() == 256<<20,
		"per_task": now.GetStreams().GetPerTask() == 3, "per_caller": now.GetStreams().GetPerCaller() == 1000, "v0_3": !now.GetProtocol().GetV0_3(),
		"a list":   now.GetAuth().GetJwt()[0].GetLeeway().AsDuration() == 30*time.Second && now.GetAuth().GetJwt()[1].GetLeeway().AsDuration() == 0,
		"sampling": now.GetLog().GetSampling().GetThereafter() == 100, "no tls": now.GetTls() == nil, "no limits of accounts": now.GetLimits().GetAccount() == nil,
		"not modified": proto.Equal(given, before),
	} {
		if !ok {
			t.Errorf("%s: %v", name, now.ServerSettings)
		}
	}
}

// TestNewRefuses: settings of a program are checked like those of a file, and the error names the setting.
func TestNewRefuses(t *testing.T) {
	for want, s := range map[string]*teamv1.ServerSettings{
		"http: http must be HOST:PORT":               {Http: "8080"},
		"limits.max_calls: max_calls must be":        {Limits: &teamv1.LimitSettings{MaxCalls: proto.Int32(1)}},
		"trusted_proxies: trusted_proxies must be":   {TrustedProxies: []string{"here"}},
		`egress.allow: "10.0.0.1/8" has bits set`:    {Egress: &teamv1.EgressSettings{Allow: []string{"10.0.0.1/8"}}},
		"auth.api_keys[0].name: this cannot be":      {Auth: &teamv1.AuthConfig{ApiKeys: []*teamv1.ApiKey{{Sha256: strings.Repeat("0", 64)}}}},
		"cors allows every origin, which requires":   {Cors: &teamv1.CorsSettings{Origins: []string{"*"}}},
		"shutdown_timeout: shutdown_timeout must be": {ShutdownTimeout: durationpb.New(0)},
	} {
		if _, err := settings.New(s, "", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	now, err := settings.New(&teamv1.ServerSettings{TrustedProxies: []string{"10.0.0.0/8", "::1", "192.0.2.1"}}, "", "")
	if err != nil || fmt.Sprint(now.Proxies) != "[10.0.0.0/8 ::1/128 192.0.2.1/32]" {
		t.Errorf("%v %v", now, err)
	}
	if now, err := settings.New(nil, "http://a", "b:1"); err != nil || now.BaseURL != "http://a" || now.Address != "b:1" {
		t.Errorf("%v %v", now, err)
	}
}

// TestContinue: settings that take effect when a server starts keep their values, those within others too; all others change.
func TestContinue(t *testing.T) {
	if at := settings.AtStart(); !slices.Contains(at, "store") || !slices.Contains(at, "log.format") || slices.Contains(at, "log") || slices.Contains(at, "auth") {
		t.Errorf("take effect at the start: %v", at)
	}
	started := settings.Of(&teamv1.ServerSettings{Deduplicate: "off", Tls: &teamv1.ServerTls{Cert: "a"}}).Load().ServerSettings
	next := settings.Of(&teamv1.ServerSettings{Http: "127.0.0.1:1", PublicUrl: "https://a", Log: &teamv1.LogSettings{Level: "debug", Format: "json"}, Metrics: "127.0.0.1:2"}).Load().ServerSettings
	settings.Continue(started, next)
	want := settings.Of(&teamv1.ServerSettings{Deduplicate: "off", Tls: &teamv1.ServerTls{Cert: "a"}, PublicUrl: "https://a", Log: &teamv1.LogSettings{Level: "debug"}}).Load().ServerSettings
	if !proto.Equal(next, want) {
		t.Errorf("got %v\nwant %v", next, want)
	}
}
