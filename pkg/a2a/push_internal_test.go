package a2a

import (
	"errors"
	"strings"
	"testing"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

func FuzzP17_PushToken(f *testing.F) {
	for _, token := range []string{"", "cHVzaDphYmM", pushToken("abc"), "!", "cHVzaDo"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		after, ok := openPushToken(token)
		if !ok || token == "" {
			return
		}
		if !idPattern.MatchString(after) || after == "" {
			t.Fatalf("%q leads behind %q", token, after)
		}
		if again, ok := openPushToken(pushToken(after)); !ok || again != after {
			t.Fatalf("%q became %q", after, again)
		}
	})
}

func FuzzP17_PushConfig(f *testing.F) {
	f.Add("https://example.com/hook", "token", "Bearer", "credentials")
	f.Add("http://[::1]:80/x?y#z", "", "", "")
	f.Add("https://ann:canary@example.com", "canary\r\n", "Bearer canary", "\x00canary")
	f.Fuzz(func(t *testing.T, url, token, scheme, credentials string) {
		var c checker
		c.push("", &a2av1.TaskPushNotificationConfig{
			Url: url, Token: token, Authentication: &a2av1.AuthenticationInfo{Scheme: scheme, Credentials: credentials},
		}, nil)
		if err := c.Err(); err != nil {
			for _, s := range []string{url, token, scheme, credentials} {
				if strings.Contains(s, "canary") && strings.Contains(err.Error(), "canary") {
					t.Fatalf("the error shows what was sent: %v", err)
				}
			}
			return
		}
		if strings.ContainsAny(token+scheme+credentials, "\r\n\x00") || strings.Contains(scheme, " ") {
			t.Fatalf("%q, %q, %q would break a header", token, scheme, credentials)
		}
		if !strings.HasPrefix(strings.ToLower(url), "http") {
			t.Fatalf("%q was taken", url)
		}
	})
}

// TestA_21_MasksStandForSecrets: what was read can be sent back.
func TestA_21_MasksStandForSecrets(t *testing.T) {
	secret := &a2av1.TaskPushNotificationConfig{Id: "a", Url: "https://example.com/a", Token: "one", Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "two"}}
	shown := masked(secret)
	if shown.GetToken() != Masked || shown.GetAuthentication().GetCredentials() != Masked || secret.GetToken() != "one" {
		t.Fatalf("shown is %v of %v", shown, secret)
	}
	if plain := masked(&a2av1.TaskPushNotificationConfig{Id: "a"}); plain.GetToken() != "" || plain.GetAuthentication() != nil {
		t.Errorf("shown is %v of none", plain)
	}
	if err := unmask(shown, secret, ""); err != nil || shown.GetToken() != "one" || shown.GetAuthentication().GetCredentials() != "two" {
		t.Errorf("sent back it is %v, %v", shown, err)
	}
	if err := unmask(masked(secret), nil, ""); err == nil {
		t.Error("a mask for nothing was taken")
	}
}

// TestA_21_T_16_SecretsStayWithTheirReceiver: a mask takes a secret to another path of
// the host that it was meant for, and nowhere else.
func TestA_21_T_16_SecretsStayWithTheirReceiver(t *testing.T) {
	for _, c := range []struct {
		was, url string
		same     bool
	}{
		{"https://example.com/a", "https://example.com/b?c#d", true},
		{"https://example.com/a", "https://EXAMPLE.com:443/a", true},
		{"http://[::1]:80/a", "http://[::1]/a", true},
		{"https://example.com/a", "https://example.org/a", false},
		{"https://example.com/a", "https://sub.example.com/a", false},
		{"https://example.com/a", "https://example.com:8443/a", false},
		{"https://example.com/a", "http://example.com/a", false},
		{"https://example.com/a", "http://example.com:443/a", false},
	} {
		old := &a2av1.TaskPushNotificationConfig{Url: c.was, Token: "canary", Authentication: &a2av1.AuthenticationInfo{Scheme: "Bearer", Credentials: "canary"}}
		conf := masked(old)
		conf.Url = c.url
		err := unmask(conf, old, "at.")
		if c.same {
			if err != nil || conf.GetToken() != "canary" || conf.GetAuthentication().GetCredentials() != "canary" {
				t.Errorf("from %s to %s: %v, %v", c.was, c.url, conf, err)
			}
			continue
		}
		if conf.GetToken() != Masked || conf.GetAuthentication().GetCredentials() != Masked {
			t.Errorf("%s gets the secrets of %s", c.url, c.was)
		}
		var e *a2aerror.Error
		if !errors.As(err, &e) || e.Reason != agent.ReasonInvalidRequest || len(e.Violations) != 2 || e.Violations[0].Field != "at.token" {
			t.Errorf("from %s to %s: %v", c.was, c.url, err)
		}
		conf.Token, conf.Authentication.Credentials = "new", ""
		if err := unmask(conf, old, ""); err != nil || conf.GetToken() != "new" {
			t.Errorf("another secret for %s: %v, %v", c.url, conf, err)
		}
	}
}
