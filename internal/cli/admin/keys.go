package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/auth"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/client"
	"github.com/agentteams/team-server/internal/identity"
)

// NewKey are the flags of keys new.
type NewKey struct {
	Name, Account, Expires string
	Permissions, Roles     []string
	// Offline makes a key for the file of a server instead of calling one.
	Offline bool
}

// request returns the request for a key.
func (f *NewKey) request(now time.Time) (*teamv1.CreateKeyRequest, error) {
	req := &teamv1.CreateKeyRequest{Name: f.Name, Account: f.Account, Roles: f.Roles}
	if f.Name == "" {
		return nil, console.Usagef("keys new needs --name NAME, for example: team-server keys new --name ann")
	}
	for _, text := range f.Permissions {
		name := strings.ToUpper(text)
		if _, known := identity.ParsePermission(name); !known {
			return nil, console.Usagef("--permissions %s: expected READ, CALL, ANSWER, WATCH, MANAGE, HALT or ADMIN", text)
		}
		req.Permissions = append(req.Permissions, teamv1.Permission_Value(teamv1.Permission_Value_value[name]))
	}
	if f.Expires != "" {
		at, err := expiry(f.Expires, now)
		if err != nil {
			return nil, err
		}
		req.Expires = timestamppb.New(at)
	}
	return req, nil
}

var daysPattern = regexp.MustCompile(`^[0-9]{1,5}d$`)

// expiry returns the time that --expires names: a duration from now, a day, or a time.
func expiry(text string, now time.Time) (time.Time, error) {
	after, err := time.ParseDuration(text)
	if daysPattern.MatchString(text) {
		days, _ := strconv.Atoi(strings.TrimSuffix(text, "d")) // only digits
		after, err = time.Duration(days)*24*time.Hour, nil
	}
	at := now.Add(after)
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if err != nil {
			at, err = time.Parse(layout, text)
		}
	}
	if err != nil || !at.After(now) {
		return time.Time{}, console.Usagef("--expires %s: expected a duration such as 90d or 12h, or a day or a time in the future, such as 2027-01-31", text)
	}
	return at.UTC().Truncate(time.Second), nil
}

// NewKey makes an API key and prints it.
func (c *Commands) NewKey(ctx context.Context, f *NewKey) error {
	req, err := f.request(time.Now())
	if err != nil {
		return err
	}
	if f.Offline {
		return c.offlineKey(req)
	}
	resp, err := console.Ask(c.Connection, "keys new", func(server *client.Team) (*teamv1.CreateKeyResponse, error) { return server.CreateKey(ctx, req) })
	if err != nil {
		return err
	}
	if c.Console.JSON {
		return c.Console.Print(resp)
	}
	fmt.Fprintln(c.Console.Text(), resp.GetSecret())
	c.Console.Sayf("key %s of %s/%s; it is not shown again", resp.GetKey().GetId(), resp.GetKey().GetAccount(), resp.GetKey().GetName())
	return nil
}

// offlineKey makes a key, and prints it with its entry for the file of a server.
func (c *Commands) offlineKey(req *teamv1.CreateKeyRequest) error {
	_, secret, sum := auth.NewKey()
	entry := []string{"name: " + req.GetName()}
	if req.GetAccount() != "" {
		entry = append(entry, "account: "+req.GetAccount())
	}
	if len(req.GetPermissions()) > 0 {
		entry = append(entry, "permissions: ["+words(req.GetPermissions())+"]")
	}
	if len(req.GetRoles()) > 0 {
		entry = append(entry, "roles: ["+strings.Join(req.GetRoles(), ", ")+"]")
	}
	if req.GetExpires() != nil {
		entry = append(entry, "expires: "+strconv.Quote(req.GetExpires().AsTime().Format(time.RFC3339)))
	}
	line := "{" + strings.Join(append(entry, "sha256: "+hex.EncodeToString(sum[:])), ", ") + "}"
	if c.Console.JSON {
		return json.NewEncoder(c.Console.Out).Encode(struct { //nolint:gosec // printing the key is what the command is for
			Secret string `json:"secret"`
			Entry  string `json:"entry"`
		}{secret, line})
	}
	fmt.Fprintf(c.Console.Text(), "%s\n- %s\n", secret, line)
	c.Console.Sayf("the first line is the key, which is not shown again; add the second to server.auth.api_keys of the server's file, and reload or start the server")
	return nil
}

// words returns permissions, separated by commas.
func words(list []teamv1.Permission_Value) string {
	var all []string
	for _, p := range list {
		all = append(all, p.String())
	}
	return strings.Join(all, ", ")
}

// ListKeys prints the API keys that were made by the API.
func (c *Commands) ListKeys(ctx context.Context) error {
	list, err := console.Ask(c.Connection, "keys ls", func(server *client.Team) ([]*teamv1.Key, error) { return server.ListKeys(ctx) })
	if err != nil {
		return err
	}
	return c.keys(list)
}

// RevokeKey ends an API key and prints it.
func (c *Commands) RevokeKey(ctx context.Context, id string) error {
	k, err := console.Ask(c.Connection, "keys revoke", func(server *client.Team) (*teamv1.Key, error) { return server.RevokeKey(ctx, id) })
	if err != nil {
		return err
	}
	return c.keys([]*teamv1.Key{k})
}

// keys prints API keys.
func (c *Commands) keys(list []*teamv1.Key) error {
	now := time.Now()
	return console.Table(c.Console, list, "ID\tOWNER\tPERMISSIONS\tROLES\tEXPIRES\tSTATE", func(k *teamv1.Key) []string {
		state, expires := "valid", "never"
		if k.GetExpires() != nil {
			expires = k.GetExpires().AsTime().UTC().Format(time.RFC3339)
			if !now.Before(k.GetExpires().AsTime()) {
				state = "expired"
			}
		}
		if k.GetRevoked() != nil {
			state = "revoked " + k.GetRevoked().AsTime().UTC().Format(time.RFC3339)
		}
		return []string{
			k.GetId(), k.GetAccount() + "/" + k.GetName(), words(k.GetPermissions()), cmp.Or(strings.Join(k.GetRoles(), ", "), "-"), expires, state,
		}
	})
}
