package store

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// URLs of stores.
const (
	// MemoryURL is the URL of the store in the memory of the process.
	MemoryURL = "memory:"
	// SQLite is the prefix of the URL of a SQLite store: sqlite:FILE.
	SQLite = "sqlite:"
)

// errURL is the error for a URL that does not name a store.
var errURL = errors.New("a store is memory:, sqlite:FILE or postgres://USER@HOST/DATABASE")

// errAt is the error for a URL with more than one @ before the host. It is ambiguous where the
// password ends, so that part of it could be shown as the host.
var errAt = errors.New("a store's URL has one @ before the host; write an @ in a user or password as %40")

// twoAts matches a URL with more than one @ before its path.
var twoAts = regexp.MustCompile(`^[^/]*//[^/?#]*@[^/?#]*@`)

// CheckURL returns an error if a URL cannot name a store. It does not open the store.
func CheckURL(raw string) error {
	if IsPostgres(raw) && twoAts.MatchString(raw) {
		return errAt
	}
	if raw == MemoryURL || IsPostgres(raw) || strings.HasPrefix(raw, SQLite) && raw != SQLite {
		return nil
	}
	return errURL
}

// IsPostgres reports whether a URL names a PostgreSQL database, which several processes can share.
func IsPostgres(raw string) bool {
	return strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://")
}

// concealed replaces a password.
const concealed = "xxxxx"

// Redacted returns a store's URL without passwords, for people and logs.
func Redacted(raw string) string {
	if CheckURL(raw) != nil {
		if scheme, rest, _ := strings.Cut(raw, ":"); rest != "" && !strings.ContainsAny(scheme, "= ") {
			return scheme + ":…"
		}
		if strings.ContainsAny(raw, "=@") {
			return "…" // it may hold a password
		}
	}
	if !IsPostgres(raw) {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "postgres://…"
	}
	q := u.Query()
	for name := range q {
		if !slices.Contains(plainParameters, name) {
			q.Set(name, concealed)
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}

// plainParameters are the parameters of a PostgreSQL URL that hold no secret. All others, including
// mistyped ones, are concealed.
var plainParameters = []string{"host", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name", "target_session_attrs"}

// Conceal replaces the passwords of a store's URL in a text, if they appear in it as part of a URL.
func Conceal(text, raw string) string {
	if raw == "" {
		return text
	}
	text = strings.ReplaceAll(text, raw, Redacted(raw))
	u, err := url.Parse(raw)
	if err != nil {
		return text
	}
	password, _ := u.User.Password()
	_, escaped, _ := strings.Cut(u.User.String(), ":")
	for _, s := range []string{password, escaped} {
		if s != "" {
			text = strings.ReplaceAll(text, ":"+s+"@", ":"+concealed+"@")
		}
	}
	for name, values := range u.Query() {
		if s := values[0]; s != "" && !slices.Contains(plainParameters, name) {
			text = strings.ReplaceAll(text, name+"="+s, name+"="+concealed)
		}
	}
	return text
}
