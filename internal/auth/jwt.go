package auth

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/pkg/agent"
)

// Issuer is an issuer of tokens: JSON web tokens of an OpenID Connect or OAuth server.
type Issuer struct {
	// Name is the part of its callers' principals before the colon. Required: 1 to 32 of a-z, A-Z,
	// 0-9, _ . and -
	Name string
	// URL is the issuer as its tokens name it. Required.
	URL string
	// Audiences are the audiences that are accepted. Required.
	Audiences []string
	// Algorithms are the signature algorithms that are accepted; nil means RS256, ES256 and EdDSA.
	Algorithms []string
	// JWKSURL is the address of the issuer's keys; "" means the one of its discovery document.
	JWKSURL string
	// CAFile has certificate authorities to trust for these addresses in addition to the system's.
	CAFile string
	// Leeway is by how much clocks may differ, at most a minute.
	Leeway time.Duration
	// Account is the account of callers if AccountClaim is ""; "" means "default".
	Account string
	// AccountClaim, PrincipalClaim, RolesClaim and PermissionsClaim name claims. A dot separates the
	// names of nested ones. PrincipalClaim is "sub" by default, the others are not read.
	AccountClaim, PrincipalClaim, RolesClaim, PermissionsClaim string
	// Permissions says what callers may do, and with PermissionsClaim, at most; 0 means
	// identity.DefaultPermissions.
	Permissions identity.Permissions
	// Page is the Team Monitor as a client of the issuer; nil means that its users cannot sign in
	// with the issuer.
	Page *PageClient
}

// IssuersOf returns the issuers of a configuration.
func IssuersOf(c *teamv1.AuthConfig) (all []Issuer) {
	for _, i := range c.GetJwt() {
		one := Issuer{
			Name: i.GetName(), URL: i.GetIssuer(), Audiences: i.GetAudiences(), Algorithms: i.GetAlgorithms(), JWKSURL: i.GetJwksUrl(), CAFile: i.GetCa(),
			Account: i.GetAccount(), AccountClaim: i.GetClaims().GetAccount(), PrincipalClaim: i.GetClaims().GetPrincipal(),
			Leeway: i.GetLeeway().AsDuration(), RolesClaim: i.GetClaims().GetRoles(), PermissionsClaim: i.GetClaims().GetPermissions(), Permissions: permissionsOf(i.GetPermissions()),
		}
		if p := i.GetPage(); p != nil {
			one.Page = &PageClient{ClientID: p.GetClientId(), Scopes: p.GetScopes(), Audience: p.GetAudience(), Resource: p.GetResource()}
		}
		all = append(all, one)
	}
	return all
}

// algorithms are the signature algorithms that an Issuer may have. All of them need a public key.
func algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

const (
	maxLeeway = time.Minute
	// maxPrincipal is the maximum length of a principal.
	maxPrincipal = 512
)

var validIssuer = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)

// complete sets defaults, and returns what is wrong with the issuer.
func (i *Issuer) complete() error {
	if i.Algorithms == nil {
		i.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	i.PrincipalClaim = cmp.Or(i.PrincipalClaim, "sub")
	i.Account = cmp.Or(i.Account, "default")
	i.Permissions = cmp.Or(i.Permissions, identity.DefaultPermissions)
	at := slices.IndexFunc(i.Algorithms, func(alg string) bool { return !slices.Contains(algorithms(), alg) })
	switch {
	case !validIssuer.MatchString(i.Name):
		return fmt.Errorf("issuer %q: the name must be 1 to 32 of a-z, A-Z, 0-9, _ . and -", i.Name)
	case i.URL == "" || len(i.Audiences) == 0 || slices.Contains(i.Audiences, ""):
		return fmt.Errorf("issuer %q: the address and audiences are required", i.Name)
	case strings.ContainsAny(i.URL, "@?#"):
		return fmt.Errorf("issuer %q: the address must not have a user, a query or a fragment", i.Name)
	case at >= 0 || len(i.Algorithms) == 0:
		return fmt.Errorf("issuer %q: algorithms must be of %s", i.Name, strings.Join(algorithms(), ", "))
	case i.Leeway > maxLeeway:
		return fmt.Errorf("issuer %q: the leeway must be at most %s", i.Name, maxLeeway)
	case !identity.ValidAccount(i.Account):
		return fmt.Errorf("issuer %q: account %q must be %s", i.Name, i.Account, identity.AccountRule)
	case i.Page != nil && i.Page.ClientID == "":
		return fmt.Errorf("issuer %q: the client id of the page is required", i.Name)
	}
	return nil
}

// issuer is an Issuer with its keys.
type issuer struct {
	Issuer
	keys *issuerKeys
}

// tokens authenticates callers by tokens.
type tokens struct {
	issuers map[string]*issuer // by URL
	order   []string           // the URLs, as in the configuration
	known   verified
	// waits reports whether tokens that were not verified before must wait, because too many bad ones
	// came from their address. owner is the one that the token claims to be of, "" if it claims none.
	waits func(from netip.Addr, owner string) bool
	// note notes that a token was accepted.
	note func(Right)
}

// newTokens returns the authentication by tokens of issuers.
func newTokens(list []Issuer, fetch func(Issuer) (*issuerKeys, error)) (*tokens, error) {
	t := &tokens{issuers: map[string]*issuer{}, waits: func(netip.Addr, string) bool { return false }, note: func(Right) {}}
	names := map[string]bool{}
	for _, i := range list {
		if err := i.complete(); err != nil {
			return nil, err
		}
		if names[i.Name] || t.issuers[i.URL] != nil {
			return nil, fmt.Errorf("issuer %q: names and addresses of issuers must be unique", i.Name)
		}
		keys, err := fetch(i)
		if err != nil {
			return nil, fmt.Errorf("issuer %q: %w", i.Name, err)
		}
		names[i.Name], t.issuers[i.URL] = true, &issuer{Issuer: i, keys: keys}
		t.order = append(t.order, i.URL)
	}
	return t, nil
}

// Authenticate implements Authenticator.
func (t *tokens) Authenticate(r Request) (identity.Caller, error) {
	text, err := bearer(r)
	if err != nil {
		return identity.Caller{}, err
	}
	header, claims, err := decode(text)
	if err != nil {
		return identity.Caller{}, err
	}
	name, _ := claims["iss"].(string)
	i := t.issuers[name]
	if i == nil {
		return identity.Caller{}, badToken("its issuer is not accepted", true)
	}
	who, claimErr := i.caller(claims, time.Now()) // cheap, and shown only once the token is verified
	waits := func() bool {
		owner := ""
		if claimErr == nil {
			owner = who.Owner()
		}
		return !r.Again && t.waits(r.From, owner)
	}
	key, err := i.verify(text, header, &t.known, waits)
	if err != nil {
		return identity.Caller{}, err
	}
	if claimErr == nil {
		t.note(Right{who.Owner(), Source{i.URL, key}, who.Expires.Add(i.Leeway)})
	}
	return who, claimErr
}

// badToken returns the refusal of a token. guess says that it may be made up.
func badToken(what string, guess bool) *Refusal {
	no := refuse(WhyToken, what, "the token is not accepted: "+what+"; sign in again, or ask the operator of this server")
	no.Guess = guess
	return no
}

// decode decodes the header and the claims of a token without verifying it. JSON in which a name occurs twice is
// malformed. The error is ErrNone if the text is no token, such as an API key.
func decode(text string) (header, claims map[string]any, err error) {
	if strings.Count(text, ".") != 2 {
		return nil, nil, ErrNone
	}
	parts := strings.Split(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, nil, ErrNone
	}
	if json.Unmarshal(raw, &header) != nil {
		return nil, nil, badToken("its header is malformed", true)
	}
	raw, err = base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return nil, nil, badToken("its claims are malformed", true)
	}
	return header, claims, nil
}

// types are the values of typ for access tokens, in lower case.
var types = []string{"", "jwt", "at+jwt", "application/at+jwt", "application/jwt"}

// rememberFor is the longest time for which a verified token is remembered.
const rememberFor = time.Hour

// verify checks the signature of a token, and returns the thumbprint of the issuer's key that has made it. The error is
// a refusal if no key of the issuer has.
// Keys that the header itself names, by value or by address, are ignored. Tokens that are known are not verified
// again, and others only if the caller need not wait.
func (i *issuer) verify(text string, header map[string]any, known *verified, waits func() bool) (key string, err error) {
	alg, _ := header["alg"].(string)
	typ, isText := header["typ"].(string)
	if _, has := header["typ"]; has && !isText || !slices.Contains(types, strings.ToLower(typ)) {
		return "", badToken("it is of another type", true)
	}
	if !slices.Contains(i.Algorithms, alg) {
		return "", badToken("its signature algorithm is not accepted", true)
	}
	if _, has := header["crit"]; has {
		return "", badToken("its header has critical extensions", true)
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(alg)})
	if err != nil {
		return "", badToken("it is malformed", true)
	}
	kid, _ := header["kid"].(string)
	keys, ok := i.keys.find(kid, alg)
	if !ok {
		return "", &Refusal{Why: WhyNoKeys, Detail: i.Name, err: &agent.Error{
			Code: agent.CodeUnavailable, Reason: agent.ReasonUnavailable, Retry: true, RetryAfter: 5 * time.Second,
			Message: "the server cannot read the keys of the token's issuer at present; try again",
		}}
	}
	sum, now := sha256.Sum256([]byte(text)), time.Now()
	if key, has := known.find(sum, i, now); has && slices.ContainsFunc(keys, func(k issuerKey) bool { return k.print == key }) {
		return key, nil
	}
	if len(keys) > 0 && waits() {
		return "", &Refusal{Why: WhyUnknown, Guess: true, err: tooManyGuesses(maxPause)}
	}
	for _, k := range keys {
		if _, err := signed.Verify(k.Key); err == nil {
			known.add(sum, i, k.print, now.Add(rememberFor))
			return k.print, nil
		}
	}
	return "", badToken("no key of the issuer verifies its signature", true)
}

// caller returns the caller that verified claims stand for.
func (i *issuer) caller(claims map[string]any, now time.Time) (identity.Caller, error) {
	exp, hasExp := seconds(claims["exp"])
	switch {
	case isIDToken(claims):
		return identity.Caller{}, badToken("it is an ID token; send the access token", false)
	case !i.hasAudience(claims["aud"]):
		return identity.Caller{}, badToken("it is for another audience", false)
	case !hasExp:
		return identity.Caller{}, badToken("it has no expiry", false)
	case !now.Before(exp.Add(i.Leeway)):
		return identity.Caller{}, refuse(WhyExpired, i.Name, "the token has expired; sign in again")
	}
	for _, name := range []string{"nbf", "iat"} {
		if value, has := claims[name]; has {
			if at, ok := seconds(value); !ok || at.After(now.Add(i.Leeway)) {
				return identity.Caller{}, badToken("it is not valid yet", false)
			}
		}
	}
	who := identity.Caller{Account: i.Account, Permissions: i.Permissions, Expires: exp}
	subject, _ := claim(claims, i.PrincipalClaim).(string)
	if subject == "" {
		return who, badToken("its claim "+i.PrincipalClaim+" is missing", false)
	}
	who.Principal = i.Name + ":" + escape(subject)
	if len(who.Principal) > maxPrincipal {
		return who, badToken("its claim "+i.PrincipalClaim+" is too long", false)
	}
	if i.AccountClaim != "" {
		who.Account, _ = claim(claims, i.AccountClaim).(string)
		if !identity.ValidAccount(who.Account) {
			return who, badToken("its claim "+i.AccountClaim+" is no account", false)
		}
	}
	if i.RolesClaim != "" {
		for _, role := range list(claim(claims, i.RolesClaim)) {
			if identity.IsRole(role) && len(who.Roles) < maxRoles {
				who.Roles = append(who.Roles, role)
			}
		}
	}
	if i.PermissionsClaim != "" {
		var granted identity.Permissions
		for _, name := range list(claim(claims, i.PermissionsClaim)) {
			p, _ := identity.ParsePermission(strings.ToUpper(name))
			granted |= p
		}
		who.Permissions &= granted
	}
	return who, nil
}

// isIDToken reports whether claims are those of an ID token, which is for the client that signed in
// and not for this server.
func isIDToken(claims map[string]any) bool {
	for _, name := range []string{"nonce", "at_hash", "c_hash"} {
		if _, has := claims[name]; has {
			return true
		}
	}
	return claims["token_use"] == "id" || claims["typ"] == "ID"
}

// hasAudience reports whether one of the issuer's audiences is in the claim aud.
func (i *issuer) hasAudience(aud any) bool {
	if one, ok := aud.(string); ok {
		aud = []any{one}
	}
	all, _ := aud.([]any)
	return slices.ContainsFunc(all, func(one any) bool {
		text, ok := one.(string)
		return ok && slices.Contains(i.Audiences, text)
	})
}

// seconds returns the time of a number of seconds since 1970.
func seconds(value any) (time.Time, bool) {
	n, ok := value.(float64)
	return time.Unix(int64(n), 0), ok && n >= 0 && n <= 1<<40
}

// claim returns the claim with a name, or the nested one if dots separate the names of the levels.
func claim(claims map[string]any, name string) any {
	if v, has := claims[name]; has {
		return v
	}
	first, rest, nested := strings.Cut(name, ".")
	below, _ := claims[first].(map[string]any)
	if !nested || below == nil {
		return nil
	}
	return claim(below, rest)
}

// list returns the texts of a claim that is a list, or a text of words that spaces separate.
func list(value any) []string {
	if text, ok := value.(string); ok {
		return strings.Fields(text)
	}
	all, _ := value.([]any)
	var texts []string
	for _, one := range all {
		if text, ok := one.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// escape returns a subject with all characters escaped that a principal must not have. Different
// subjects stay different.
func escape(subject string) string {
	return strings.NewReplacer("%40", "@", "%7C", "|").Replace(url.QueryEscape(subject))
}

// may reports whether an owner can have a token of an issuer that is accepted.
func (t *tokens) may(owner string) bool {
	_, principal, _ := strings.Cut(owner, "/")
	name, _, isToken := strings.Cut(principal, ":")
	if !isToken || t == nil {
		return false
	}
	for _, i := range t.issuers {
		if i.Name == name {
			return true
		}
	}
	return false
}

// sources returns the keys of all issuers with which tokens are accepted. An issuer whose keys were never
// read may have every key.
func (t *tokens) sources() (list []Source) {
	if t == nil {
		return nil
	}
	for url, i := range t.issuers {
		known := i.keys.known.Load()
		if known == nil {
			list = append(list, Source{Issuer: url})
			continue
		}
		for _, k := range known.keys {
			if slices.ContainsFunc(i.Algorithms, func(alg string) bool { return fits(k, alg) }) {
				list = append(list, Source{url, k.print})
			}
		}
	}
	return list
}
