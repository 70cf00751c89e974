package egress

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/egress"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// Receiver verifies the notifications of one webhook.
type Receiver struct {
	URL  string             // the URL of the webhook, as it was registered
	Keys jose.JSONWebKeySet // the keys of the server, from its /.well-known/jwks.json
	Now  func() time.Time

	seen map[string]bool // ids of at least 24 hours, as long as notifications are repeated
}

// errAgain is the error of Verify for a notification that was received before.
var errAgain = errors.New("received before")

// Verify returns an error unless the server has sent an attempt of a notification to this webhook in the
// last five minutes. It is errAgain if an earlier attempt was received.
func (r *Receiver) Verify(h http.Header, body []byte) error {
	id, at := h.Get("A2A-Notification-Id"), h.Get("A2A-Notification-Timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || math.Abs(r.Now().Sub(time.Unix(seconds, 0)).Minutes()) > 5 {
		return errors.New("too old, or without a time")
	}
	payload := bytes.Join([][]byte{[]byte(id), []byte(at), body}, []byte("."))
	for text := range strings.SplitSeq(h.Get("A2A-Notification-Signature"), " ") {
		if r.signed(text, payload) {
			if r.seen[id] {
				return errAgain
			}
			r.seen[id] = true
			return nil
		}
	}
	return errors.New("no signature by a key of the server for this webhook")
}

// signed reports whether a JWS is a signature of a payload for this webhook.
func (r *Receiver) signed(text string, payload []byte) bool {
	jws, err := jose.ParseDetached(text, payload, []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA, jose.RS256})
	if err != nil || len(jws.Signatures) != 1 {
		return false
	}
	head := jws.Signatures[0].Protected
	if head.ExtraHeaders["typ"] != "a2a-notification+jws" || head.ExtraHeaders["url"] != r.URL {
		return false
	}
	for _, key := range r.Keys.Key(head.KeyID) {
		if jws.DetachedVerify(payload, key.Key) == nil {
			return true
		}
	}
	return false
}

// TestT_20_SignedNotifications: a receiver verifies what the server sends with the keys that it
// serves, and rejects what is old, changed, meant for another receiver, or signed by others.
func TestT_20_SignedNotifications(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keys := []server.CardKey{{ID: "old", Private: ec}, {ID: "new", Private: ed}, {ID: "long", Private: long}}
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, asking(t)), Push: hasty, CardKeys: keys, Settings: &teamv1.ServerSettings{Egress: &teamv1.EgressSettings{Allow: egress.Loopback()}}})
	type call struct {
		header http.Header
		body   []byte
	}
	calls := make(chan call, 100)
	failed := false
	hook := receiving(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		calls <- call{r.Header.Clone(), b}
		if !failed { // it is sent again, with the same id
			failed = true
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	c := rig.NewREST(target)
	task := open(t, c, "begin")
	if _, err := c.CreatePush(t.Context(), &a2av1.TaskPushNotificationConfig{Tenant: "asks", TaskId: task, Id: "mine", Url: hook}); err != nil {
		t.Fatal(err)
	}
	reply(t, c, task)
	first, again := <-calls, <-calls
	for _, kids := range [][]string{{"old"}, {"new"}, {"long"}, {"old", "new", "long"}} {
		now := time.Now()
		r := &Receiver{URL: hook, Keys: jwks(t, target, kids...), Now: func() time.Time { return now }, seen: map[string]bool{}}
		if err := r.Verify(first.header, first.body); err != nil {
			t.Errorf("with the keys %v: %v", kids, err)
		}
		if err := r.Verify(again.header, again.body); !errors.Is(err, errAgain) {
			t.Errorf("a repetition: %v", err)
		}
		fresh := func() { clear(r.seen) }
		for what, change := range map[string]func(h http.Header, body *[]byte){
			"another body":      func(_ http.Header, b *[]byte) { *b = append(bytes.Clone(*b), ' ') },
			"another id":        func(h http.Header, _ *[]byte) { h.Set("A2A-Notification-Id", "other") },
			"another time":      func(h http.Header, _ *[]byte) { h.Set("A2A-Notification-Timestamp", fmt.Sprint(now.Unix()+1)) },
			"no time":           func(h http.Header, _ *[]byte) { h.Del("A2A-Notification-Timestamp") },
			"no signature":      func(h http.Header, _ *[]byte) { h.Del("A2A-Notification-Signature") },
			"another signature": func(h http.Header, _ *[]byte) { h.Set("A2A-Notification-Signature", "e30..AA") },
		} {
			fresh()
			h, body := first.header.Clone(), first.body
			change(h, &body)
			if err := r.Verify(h, body); err == nil {
				t.Errorf("%s was accepted", what)
			}
		}
		fresh()
		r.Now = func() time.Time { return now.Add(6 * time.Minute) }
		if err := r.Verify(first.header, first.body); err == nil {
			t.Error("a replay after six minutes was accepted")
		}
		r.Now = func() time.Time { return now }
		r.URL += "/other"
		if err := r.Verify(first.header, first.body); err == nil {
			t.Error("a notification for another receiver was accepted")
		}
	}
	stranger := &Receiver{URL: hook, Now: time.Now, seen: map[string]bool{}, Keys: jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &long.PublicKey, KeyID: "old"}}}}
	if err := stranger.Verify(first.header, first.body); err == nil {
		t.Error("a signature by another key was accepted")
	}
}

// receiving serves a webhook on this machine and returns its URL.
func receiving(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	receive(t, "127.0.0.1:9099", handler)
	return "http://127.0.0.1:9099/hook?a=b"
}

// jwks reads keys of a server.
func jwks(t testing.TB, target rig.Target, kids ...string) jose.JSONWebKeySet {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target.HTTP+"/.well-known/jwks.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all, some jose.JSONWebKeySet
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, kid := range kids {
		some.Keys = append(some.Keys, all.Key(kid)...)
	}
	if len(some.Keys) != len(kids) {
		t.Fatalf("keys %v are not all served", kids)
	}
	return some
}
