package db

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/agentteams/team-server/pkg/secret"
)

// testRing returns a keyring with keys of the ids, each of its own value.
func testRing(t testing.TB, ids ...string) *keyring {
	t.Helper()
	var keys []secret.Key
	for _, id := range ids {
		keys = append(keys, secret.Key{ID: id, Value: secret.New(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(id[:1], 32))))})
	}
	r, err := newKeyring(bytes.Repeat([]byte{7}, 32), keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestKeyring: a value opens under its name with its key only.
func TestKeyring(t *testing.T) {
	for id, r := range map[string]*keyring{"": testRing(t), "one": testRing(t, "one", "two"), "two": testRing(t, "two", "one")} {
		sealed := r.seal([]byte("name"), []byte("plain"))
		if got, _ := ParseSealed(sealed); got != id {
			t.Errorf("sealed with %q, want %q", got, id)
		}
		if plain, err := r.open([]byte("name"), sealed); err != nil || string(plain) != "plain" {
			t.Errorf("%q: opened as %q, %v", id, plain, err)
		}
		if bytes.Equal(sealed, r.seal([]byte("name"), []byte("plain"))) {
			t.Errorf("%q: the same output twice", id)
		}
		for i := range sealed {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1
			if _, err := r.open([]byte("name"), changed); err == nil {
				t.Errorf("%q: opened although byte %d has changed", id, i)
			}
		}
		if _, err := r.open([]byte("other"), sealed); err == nil {
			t.Errorf("%q: opened under another name", id)
		}
		var missing NoKeyError
		if _, err := testRing(t, "three").open([]byte("name"), sealed); id != "" && (!errors.As(err, &missing) || missing.id != id) {
			t.Errorf("%q: opened without its key: %v", id, err)
		}
	}
	if _, err := newKeyring([]byte("short"), nil); err == nil {
		t.Error("took a key of five bytes from the store")
	}
}

// FuzzP17_Sealed: nothing opens that the keyring has not sealed, and nothing crashes it.
func FuzzP17_Sealed(f *testing.F) {
	r := testRing(f, "one", "two")
	for _, other := range []*keyring{testRing(f), r, testRing(f, "two")} {
		f.Add(other.seal([]byte("other"), []byte("plain")))
	}
	f.Add([]byte(sealedMagic))
	f.Add([]byte(sealedMagic + "\x00"))
	f.Add([]byte(sealedMagic + "\x03one"))
	f.Add([]byte(sealedMagic + "\xffone"))
	f.Fuzz(func(t *testing.T, value []byte) {
		id, n := ParseSealed(value)
		if (n == 0) != (id == "") || n > len(value) || n > 0 && !bytes.Equal(value[:n], SealedHeader(id)) {
			t.Errorf("parsed as %q, %d", id, n)
		}
		if plain, err := r.open([]byte("name"), value); err == nil {
			t.Errorf("opened as %q", plain)
		}
	})
}
