package store

import (
	"errors"
	"net/url"
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

// CheckURL says whether a URL can name a store. Whether that can be opened is
// another question.
func CheckURL(raw string) error {
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
	if !IsPostgres(raw) {
		if CheckURL(raw) != nil {
			if scheme, rest, _ := strings.Cut(raw, ":"); rest != "" && !strings.ContainsAny(scheme, "= ") {
				return scheme + ":…"
			}
			if strings.ContainsAny(raw, "=@") {
				return "…" // whatever it is, it may hold a password
			}
		}
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "postgres://…"
	}
	q := u.Query()
	for _, name := range secretParameters {
		if q.Has(name) {
			q.Set(name, concealed)
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}

// secretParameters are those of a PostgreSQL URL that hold a secret.
var secretParameters = []string{"password", "sslpassword"}

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
	for _, name := range secretParameters {
		if s := u.Query().Get(name); s != "" {
			text = strings.ReplaceAll(text, name+"="+s, name+"="+concealed)
		}
	}
	return text
}
