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
	// MemoryURL is the store in the memory of the process.
	MemoryURL = "memory:"
	// SQLite begins the URL of a store in a file: sqlite:FILE.
	SQLite = "sqlite:"
)

// errURL is what is wrong with a URL that names no store.
var errURL = errors.New("a store is memory:, sqlite:FILE or postgres://USER@HOST/DATABASE")

// errAt is what is wrong with a URL of which nobody can say where the password ends:
// part of it would be taken for a host, and shown.
var errAt = errors.New("a store's URL has one @ before the host; write an @ in a user or password as %40")

// twoAts matches a URL with more than one @ before its path.
var twoAts = regexp.MustCompile(`^[^/]*//[^/?#]*@[^/?#]*@`)

// CheckURL says whether a URL can name a store. Whether that can be opened is
// another question.
func CheckURL(raw string) error {
	if IsPostgres(raw) && twoAts.MatchString(raw) {
		return errAt
	}
	if raw == MemoryURL || IsPostgres(raw) || strings.HasPrefix(raw, SQLite) && raw != SQLite {
		return nil
	}
	return errURL
}

// IsPostgres reports whether a URL names a database that several processes share.
func IsPostgres(raw string) bool {
	return strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://")
}

// concealed stands for a password.
const concealed = "xxxxx"

// Redacted is a store's URL for people and logs: without passwords.
func Redacted(raw string) string {
	if CheckURL(raw) != nil {
		if scheme, rest, _ := strings.Cut(raw, ":"); rest != "" && !strings.ContainsAny(scheme, "= ") {
			return scheme + ":…"
		}
		if strings.ContainsAny(raw, "=@") {
			return "…" // whatever it is, it may hold a password
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

// plainParameters are those of a PostgreSQL URL that hold no secret. Others may, also
// mistyped ones.
var plainParameters = []string{"host", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name", "target_session_attrs"}

// Conceal takes the passwords of a store's URL out of a text, where they stand as
// part of an address.
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
