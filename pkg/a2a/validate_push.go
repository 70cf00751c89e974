package a2a

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// Limits of push configurations, in bytes.
const (
	maxPushURL    = 2 << 10
	maxPushSecret = 4 << 10
)

// schemePattern matches authentication schemes of HTTP, which are tokens of at most 64 characters
// (RFC 9110, section 11.1).
var schemePattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")

// secretPattern matches values that can be sent in a header unchanged.
var secretPattern = regexp.MustCompile(`^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$`)

// push checks a push configuration. prefix is its place in the request, and allowed is
// Config.CheckWebhook. Violations do not repeat values that may be secret.
func (c *checker) push(prefix string, p *a2av1.TaskPushNotificationConfig, allowed func(*url.URL) error) {
	c.id(prefix+"tenant", p.GetTenant())
	c.id(prefix+"id", p.GetId())
	c.receiver(prefix+"url", p.GetUrl(), allowed)
	c.secret(prefix+"token", p.GetToken())
	if a := p.GetAuthentication(); a != nil {
		switch {
		case a.GetScheme() == "":
			c.Add(prefix+"authentication.scheme", "is required, for example Bearer; omit authentication to send no credentials")
		case !schemePattern.MatchString(a.GetScheme()):
			c.Add(prefix+"authentication.scheme", "is not an HTTP authentication scheme such as Bearer or Basic")
		}
		c.secret(prefix+"authentication.credentials", a.GetCredentials())
	}
}

// receiver checks the URL of the receiver of notifications.
func (c *checker) receiver(field, raw string, allowed func(*url.URL) error) {
	u, err := receiver(raw)
	if err == nil && allowed != nil {
		err = allowed(u)
	}
	if err != nil {
		c.Add(field, "%v", err)
	}
}

// receiver parses the URL of the receiver of notifications. The error follows the name of a field.
func receiver(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errors.New("is required; send an address such as https://example.com/hook")
	case len(raw) > maxPushURL:
		return nil, fmt.Errorf("has %d bytes; at most %d are allowed", len(raw), maxPushURL)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("is not a valid URL; send an address such as https://example.com/hook")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with https:// or http://")
	case u.Hostname() == "":
		return nil, errors.New("has no host; send an address such as https://example.com/hook")
	case u.User != nil:
		return nil, errors.New("contains a user or password; send them in authentication")
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return nil, errors.New("has an invalid port; it must be 1 to 65535")
		}
	}
	return u, nil
}

// secret checks a value that is sent in a header.
func (c *checker) secret(field, s string) {
	switch {
	case s == "":
	case len(s) > maxPushSecret:
		c.Add(field, "has %d bytes; at most %d are allowed", len(s), maxPushSecret)
	case !secretPattern.MatchString(s):
		c.Add(field, "contains characters that cannot be sent in a header; use printable ASCII without leading or trailing spaces")
	}
}

// inlinePush checks the push configuration in a send request.
func (c *checker) inlinePush(req *a2av1.SendMessageRequest, p *a2av1.TaskPushNotificationConfig, allowed func(*url.URL) error) {
	c.push(inlineField, p, allowed)
	if id := p.GetTaskId(); id != "" && id != req.GetMessage().GetTaskId() {
		c.Add(inlineField+"taskId", "must be omitted or match the task of the message")
	}
	if t := p.GetTenant(); t != "" && t != req.GetTenant() {
		c.Add(inlineField+"tenant", "must be omitted or match the tenant of the request")
	}
}

// inlineField is the place of a push configuration in a send request.
const inlineField = "configuration.taskPushNotificationConfig."
