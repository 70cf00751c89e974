package doctor_test

import (
	"bytes"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	_ "modernc.org/sqlite"

	"github.com/jackc/pgx/v5"

	"github.com/agentteams/team-server/internal/cli"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/doctor"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/testkit/fakeagent"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/internal/testkit/testcerts"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// setup is a folder with a configuration file, which a test breaks.
type setup struct {
	*testing.T
	dir string
	// server, agents, models and tools are the sections of the file, in flow style.
	server, agents, models, tools string
	flags                         cli.Doctor
}

func newSetup(t *testing.T) *setup {
	s := &setup{T: t, dir: t.TempDir(), flags: cli.Doctor{Timeout: doctor.DefaultTimeout}}
	s.server, s.agents = `store: "sqlite:`+filepath.Join(s.dir, "team.db")+`"`, `echo: {scripted: {steps: [{echo: true}]}}`
	return s
}

// shop adds a tool of an MCP server, and an agent that uses it.
func (s *setup) shop(server string) {
	s.tools = `shop: {mcp: {` + server + `}}`
	s.agents += `, clerk: {model: fast, instructions: sell, tools: [shop]}`
	s.models = `fast: {provider: openai, name: m, base_url: "` + lists(s.T, "", "m") + `"}`
}

// write writes a file into the folder.
func (s *setup) write(name, text string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// run runs the command and returns what it prints, and its exit code.
func (s *setup) run(json bool) (string, int) {
	s.Helper()
	server := s.server
	for _, key := range []string{"http", "grpc"} {
		if !strings.Contains(server, key+": ") {
			server += ", " + key + ": 127.0.0.1:0"
		}
	}
	file := fmt.Sprintf("version: v1\nserver: {%s}\nagents: {%s}\nmodels: {%s}\ntools: {%s}\n", server, s.agents, s.models, s.tools)
	var out bytes.Buffer
	shell := &cli.Shell{Console: console.Console{Out: &out, Talk: &out, JSON: json}}
	code := shell.Exit(shell.Doctor(s.Context(), s.write("team.yaml", file), s.flags))
	return out.String(), code
}

// refuse is a server that answers every request with a status and a body.
func refuse(t *testing.T, status int, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// lists is a model endpoint that accepts one key.
func lists(t *testing.T, key string, models ...string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key")
		if r.Method != http.MethodGet || given != key {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var data []map[string]string
		for _, m := range models {
			data = append(data, map[string]string{"id": m})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// closedAddress is an address at which nothing listens.
func closedAddress(t *testing.T) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const hush = "hush-hush-key-0123456789"

// Each case breaks one thing of a set-up that works. want is the line that says so, and the other checks are made
// all the same.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		name, want string
		code       int
		do         func(s *setup)
	}{
		{"nothing", "ok       file: ", 0, func(*setup) {}},
		{"the file has a fault", "failed   file: it has faults: 1; correct the file", 3, func(s *setup) { s.agents = `echo: {nothing: 1}` }},
		{"T-42 wrong key for a model", `failed   model fast: the endpoint of model "m" refused the key (HTTP 401); check the model's api_key`, 1, func(s *setup) {
			s.models = `fast: {provider: openai, name: m, base_url: "` + lists(s.T, "right", "m") + `", api_key: ` + hush + `}, ` +
				`other: {provider: anthropic, name: c, base_url: "` + lists(s.T, hush, "c") + `", api_key: ` + hush + `}`
		}},
		{"model unreachable", `failed   model fast: the endpoint of model "m" could not be reached; check base_url and the network, and that the server runs (dial tcp 127.0.0.1:`, 1, func(s *setup) {
			s.models = `fast: {provider: openai, name: m, base_url: "http://` + closedAddress(s.T) + `", api_key: ` + hush + `}`
		}},
		{"model not listed", `warning  model fast: its endpoint accepts the key, but does not list the model "m"`, 0, func(s *setup) {
			s.models = `fast: {provider: openai, name: m, base_url: "` + lists(s.T, hush, "other") + `", api_key: ` + hush + `}`
		}},
		{"key of Gemini refused", `failed   model fast: the endpoint of model "m" refused the key (HTTP 401)`, 1, func(s *setup) {
			s.models = `fast: {provider: gemini, name: m, base_url: "` + refuse(s.T, 400, `{"error":{"details":[{"reason":"API_KEY_INVALID"}]}}`) + `", api_key: ` + hush + `}`
		}},
		{"why a gateway refuses", `failed   model fast: the endpoint of model "m" does not permit this request (HTTP 403); check whether the account or key may use this model, in this region and with these contents: your account *** has no plan`, 1, func(s *setup) {
			s.models = `fast: {provider: openai, name: m, base_url: "` + refuse(s.T, 403, `{"detail": "your account `+hush+` has no plan"}`) + `", api_key: ` + hush + `}`
		}},
		{"why a gateway fails", `failed   model fast: the endpoint of model "m" failed (HTTP 502); try again later: no route to the models`, 1, func(s *setup) {
			s.models = `fast: {provider: openai, name: m, base_url: "` + refuse(s.T, 502, `{"message": "no route to the models"}`) + `"}`
		}},
		{"card 404", `failed   agent legal: agent "legal" does not serve a card (HTTP status 404): no card at http://127.0.0.1:`, 1, func(s *setup) {
			s.agents += `, legal: {a2a: {card: "` + refuse(s.T, 404, "") + `"}}`
		}},
		{"the member speaks only 0.3", `failed   agent legal: agent "legal": card read, but it offers only protocol 0.3`, 1, func(s *setup) {
			s.agents += `, legal: {a2a: {card: "` + fakeagent.New(s.T, fakeagent.Config{Old: true}).URL() + `", version: "1.0"}}`
		}},
		{"the member speaks 1.0", `ok       agent legal: its card can be read; calls use A2A 1.0 over GRPC`, 0, func(s *setup) {
			s.agents += `, legal: {a2a: {card: "` + fakeagent.New(s.T, fakeagent.Config{}).URL() + `"}}`
		}},
		{"gRPC agent down, another up", `failed   agent down: agent "down" cannot be reached: connection refused`, 1, func(s *setup) {
			s.agents += `, down: {grpc: {address: "` + closedAddress(s.T) + `"}}, up: {grpc: {address: "` + fakeagent.New(s.T, fakeagent.Config{}).GRPC() + `"}}`
		}},
		{"program of MCP not in PATH", `failed   tool shop: the MCP server of tool "shop" could not be reached: program "no-such-program" not found in PATH; check command and env in `, 1, func(s *setup) {
			s.shop(`command: [no-such-program]`)
		}},
		{"program of MCP missing", `/no-such-program: no such file or directory; check command and env in `, 1, func(s *setup) {
			s.shop(`command: [./no-such-program]`)
		}},
		{"program of MCP ends", `failed   tool shop: the MCP server of tool "shop" ended with exit code 3 before it answered, last line of stderr: cannot open *** for reading; check command and env in `, 1, func(s *setup) {
			s.shop(`command: [sh, -c, 'echo starting >&2; read x; echo "cannot open $DB for reading" >&2; exit 3'], env: {DB: ` + hush + `}`)
		}},
		{"program of MCP ends without a word", `ended with exit code 3 before it answered, and wrote nothing to stderr; check command and env in `, 1, func(s *setup) {
			s.shop(`command: [sh, -c, 'exit 3']`)
		}},
		{"program of MCP too slow", `failed   tool shop: the MCP server of tool "shop" did not list its tools within 300ms, last line of stderr: loading; check its command or url, or raise timeouts.start in `, 1, func(s *setup) {
			s.shop(`command: [sh, -c, 'echo loading >&2; while read x; do :; done'], timeouts: {start: 300ms}`)
		}},
		{"MCP server down", `failed   tool shop: the MCP server of tool "shop" could not be reached: `, 1, func(s *setup) {
			s.shop(`url: "http://` + closedAddress(s.T) + `/` + hush + `"`)
		}},
		{"MCP server refuses the token", `failed   tool shop: the MCP server of tool "shop" refused the token (HTTP 401)`, 1, func(s *setup) {
			s.shop(`url: "` + refuse(s.T, 401, hush) + `", bearer: ` + hush)
		}},
		{"certificate expired", `failed   server.tls.cert: `, 1, func(s *setup) { tlsFiles(s, time.Now().Add(-time.Minute), false) }},
		{"certificate expires soon", `warning  server.tls.cert: `, 0, func(s *setup) { tlsFiles(s, time.Now().Add(time.Hour), false) }},
		{"certificate of another key", `tls.cert and tls.key are no certificate with its key`, 3, func(s *setup) { tlsFiles(s, time.Now().Add(90*24*time.Hour), true) }},
		{"SQLite file in a file", `failed   store folder: `, 1, func(s *setup) { s.server = `store: "sqlite:` + s.write("plain", "x") + `/team.db"` }},
		{"not a database", `is not a SQLite database`, 1, func(s *setup) { s.server = `store: "sqlite:` + s.write("text.db", strings.Repeat("x", 200)) + `"` }},
		{"P19 store of a newer schema", `failed   store schema: the schema is 99999, and this version knows `, 1, func(s *setup) {
			openStore(s.T, "sqlite:"+filepath.Join(s.dir, "team.db"), true)
		}},
		{"PostgreSQL down", `failed   store: the database is not reached`, 1, func(s *setup) {
			s.server = `store: "postgres://ann:` + hush + `@` + closedAddress(s.T) + `/team"`
		}},
		{"port taken", ` is in use by another program; stop the other program, or write another address`, 1, func(s *setup) {
			s.server += `, http: "` + strings.TrimPrefix(refuse(s.T, 404, ""), "http://") + `"`
		}},
		{"issuer unreachable", `failed   issuer corp: its keys cannot be read, so its tokens are refused: dial tcp 127.0.0.1:`, 1, func(s *setup) {
			s.server += `, auth: {jwt: [{name: corp, issuer: "http://` + closedAddress(s.T) + `", audiences: [team]}]}`
		}},
		{"T-42 secret file that all can read", `it has mode 0644: every user of this machine can open it; chmod o= it`, 0, func(s *setup) {
			if err := os.Chmod(s.write("key", hush), 0o644); err != nil {
				s.Fatal(err)
			}
			s.models = `fast: {provider: openai, name: m, base_url: "` + lists(s.T, hush, "m") + `", api_key: "${file:key}"}`
		}},
		{"the same with --strict", `1 warnings, 0 failed`, 1, func(s *setup) {
			if err := os.Chmod(s.write("key", hush), 0o644); err != nil {
				s.Fatal(err)
			}
			s.models = `fast: {provider: openai, name: m, base_url: "` + lists(s.T, hush, "m") + `", api_key: "${file:key}"}`
			s.flags.Strict = true
		}},
		{"P16 clock off", `failed   clock: the clock of this machine is 1h0m0s off that of the database`, 1, func(s *setup) {
			s.server = `store: "` + pgtest.URL(s.T) + `"`
			s.flags.Clock = func() time.Time { return time.Now().Add(time.Hour) }
		}},
		{"P13 disk nearly full", `failed   disk space: 7 MiB are free on the disk of `, 1, func(s *setup) {
			s.flags.Disk = func(string) (uint64, string, error) { return 7 << 20, "", nil }
		}},
		{"file on a network", `warning  disk: `, 0, func(s *setup) {
			s.flags.Disk = func(string) (uint64, string, error) { return 7 << 40, "nfs", nil }
		}},
		{"API key expired", `failed   API key ann: it expired at 2020-01-31T00:00:00Z`, 1, func(s *setup) {
			s.server += `, auth: {api_keys: [{name: ann, sha256: ` + strings.Repeat("ab", 32) + `, expires: "2020-01-31T00:00:00Z"}]}`
		}},
		{"another encryption key", `failed   encryption keys: the encryption key "k" does not have the value that encrypted the store`, 1, func(s *setup) {
			openStore(s.T, "sqlite:"+filepath.Join(s.dir, "team.db"), false)
			s.server += `, encryption: {keys: [{id: k, value: "` + strings.Repeat("cd", 32) + `"}]}`
		}},
		{"PostgreSQL refuses the role", "failed   store: the database refuses the connection: role \"nobody\" does not exist; check user, password and name of the database\n", 1, func(s *setup) {
			s.server = `store: "` + strings.Replace(pgtest.URL(s.T), "postgres@", "nobody@", 1) + `"`
		}},
		{"P15 damaged file", "is damaged; restore a backup: database disk image is malformed (11)\n", 1, func(s *setup) {
			file := filepath.Join(s.dir, "team.db")
			openStore(s.T, "sqlite:"+file, false)
			f, err := os.OpenFile(file, os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt(bytes.Repeat([]byte{7}, 3000), 100) // the list of tables
			}
			if err := errors.Join(err, f.Close()); err != nil {
				s.Fatal(err)
			}
		}},
		{"PostgreSQL", `ok       store notifications: LISTEN receives what the store sends`, 0, func(s *setup) {
			url := pgtest.URL(s.T)
			openStore(s.T, url, false)
			s.server = `store: "` + url + `", encryption: {keys: [{id: k, value: "` + strings.Repeat("ab", 32) + `"}]}`
		}},
		{"another engine", `failed   store engine: the engine "temporal" drives the runs of the store, not "store"; set server.engine.temporal and start team-server-temporal, or stop`, 1, func(s *setup) {
			url := pgtest.URL(s.T)
			opened, err := sqlstore.Open(s.Context(), url, sqlstore.Config{})
			if err != nil {
				s.Fatal(err)
			}
			if err := errors.Join(opened.UseEngine(s.Context(), "temporal"), opened.Close()); err != nil {
				s.Fatal(err)
			}
			s.server = `store: "` + url + `"`
		}},
		{"a front without workers", `warning  store backlog: 1 tasks have been due for more than 1m0s, and the servers that share the store, 1, do not drive them; start servers with --role worker`, 0, func(s *setup) {
			url := pgtest.URL(s.T)
			opened, err := sqlstore.Open(s.Context(), url, sqlstore.Config{})
			if err == nil {
				err = opened.Close()
			}
			if err != nil {
				s.Fatal(err)
			}
			conn, err := pgx.Connect(s.Context(), url)
			if err != nil {
				s.Fatal(err)
			}
			now := time.Now()
			_, err = conn.Exec(s.Context(), `INSERT INTO replica (id, expires) VALUES ('front', $1)`, now.Add(time.Hour).UnixMilli())
			if err == nil {
				_, err = conn.Exec(s.Context(), `INSERT INTO run (id, owner, seq, bytes, due) VALUES ('one', 'acme/ann', 1, 1, $1)`, now.Add(-2*time.Minute).UnixMilli())
			}
			if err := errors.Join(err, conn.Close(s.Context())); err != nil {
				s.Fatal(err)
			}
			s.server = `store: "` + url + `"`
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetup(t)
			c.do(s)
			out, code := s.run(false)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d, and a line with %q:\n%s", code, c.code, c.want, out)
			}
			if strings.Contains(out, hush) {
				t.Errorf("T-42 the key is shown:\n%s", out)
			}
			if code != 3 && !strings.Contains(out, "address http: ") {
				t.Errorf("other checks are missing:\n%s", out)
			}
			t.Log("\n" + out)
		})
	}
}

// tlsFiles writes the certificate of the listeners, and its key or another one.
func tlsFiles(s *setup, until time.Time, otherKey bool) {
	ca := testcerts.New(s.T, "ca")
	cert, key := ca.Issue(until, "127.0.0.1")
	if otherKey {
		_, key = ca.Issue(until, "127.0.0.1")
	}
	testcerts.Write(s.T, s.dir, "cert.pem", cert)
	testcerts.Write(s.T, s.dir, "key.pem", key)
	s.server += `, tls: {cert: cert.pem, key: key.pem}`
}

// openStore makes a store that is encrypted under the key k; newer gives it a schema that no program has.
func openStore(t *testing.T, url string, newer bool) {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), url, sqlstore.Config{Keys: keysOf("k", strings.Repeat("ab", 32))})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if !newer {
		return
	}
	db, err := sql.Open("sqlite", strings.Replace(url, "sqlite:", "file:", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)`, `UPDATE setting SET value = '99999' WHERE name = 'oldest_schema'`} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

// The JSON output has the same results, and nothing in the folder has changed.
func TestJSON(t *testing.T) {
	s := newSetup(t)
	openStore(t, "sqlite:"+filepath.Join(s.dir, "team.db"), false)
	s.server += `, encryption: {keys: [{id: k, value: "` + strings.Repeat("ab", 32) + `"}]}`
	before, err := os.ReadFile(filepath.Join(s.dir, "team.db"))
	if err != nil {
		t.Fatal(err)
	}
	text, code := s.run(true)
	var out struct {
		OK, Warnings, Failed int
		Checks               []doctor.Check
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil || code != 0 || out.Failed+out.Warnings > 0 || out.OK != len(out.Checks) || out.OK < 8 {
		t.Errorf("exit code %d, %v:\n%s", code, err, text)
	}
	after, err := os.ReadFile(filepath.Join(s.dir, "team.db"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the store has changed, %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "team.db*")); err != nil || len(left) != 2 { // and the lock file
		t.Errorf("beside the store: %v, %v", left, err)
	}
}

// A server that runs with the file is no fault: its addresses and its store are in use by it.
func TestBesideAServer(t *testing.T) {
	s := newSetup(t)
	url := "sqlite:" + filepath.Join(s.dir, "team.db")
	r := startServer(t, url)
	s.server += `, http: "` + r.HTTP + `", grpc: "` + r.GRPC + `"`
	out, code := s.run(false)
	for _, want := range []string{"team.db can be read", "address http: a team-server serves " + r.HTTP, "address grpc: a team-server serves " + r.GRPC} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A server that requires certificates of clients, which doctor has not, is recognized by its own certificate; a program
// with another certificate is not.
func TestBesideAServerThatRequiresCertificates(t *testing.T) {
	s := newSetup(t)
	ca := testcerts.New(t, "ca")
	issue := func() {
		cert, key := ca.Issue(time.Now().Add(90*24*time.Hour), "127.0.0.1")
		testcerts.Write(t, s.dir, "cert.pem", cert)
		testcerts.Write(t, s.dir, "key.pem", key)
	}
	issue()
	testcerts.Write(t, s.dir, "ca.pem", ca.PEM)
	const settings = `auth: {mtls: [{san: ann.example, name: ann}]}, tls: {cert: cert.pem, key: key.pem, client_ca: ca.pem, client: REQUIRED}`
	r := startWith(t, s.write("running.yaml", "version: v1\nagents: {echo: {scripted: {steps: [{echo: true}]}}}\nserver: {"+settings+"}\n"))
	s.server += `, http: "` + r.HTTP + `", grpc: "` + r.GRPC + `", ` + settings
	out, code := s.run(false)
	for _, listener := range []string{"http: a server with the certificate of server.tls serves " + r.HTTP, "grpc: a server with the certificate of server.tls serves " + r.GRPC} {
		if !strings.Contains(out, "ok       address "+listener) {
			t.Errorf("no %q in\n%s", listener, out)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	other := testcerts.New(t, "other")
	cert, key := other.Issue(time.Now().Add(90*24*time.Hour), "127.0.0.1")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	foreign := httptest.NewUnstartedServer(http.NotFoundHandler())
	foreign.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
	foreign.Config.ErrorLog = log.New(io.Discard, "", 0)
	foreign.StartTLS()
	defer foreign.Close()
	s.server = strings.Replace(s.server, r.HTTP, foreign.Listener.Addr().String(), 1)
	if out, code := s.run(false); code != 1 || !strings.Contains(out, "failed   address http: "+foreign.Listener.Addr().String()+" is in use by another program") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A server of gRPC that is not a team-server does not pass for one, even if it refuses calls without credentials.
func TestOtherGRPCServer(t *testing.T) {
	for _, answer := range []codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.OK} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			return status.Error(answer, "nothing here")
		}))
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(l) }()
		s := newSetup(t)
		s.server += `, grpc: "` + l.Addr().String() + `"`
		out, code := s.run(false)
		if code != 1 || !strings.Contains(out, "failed   address grpc: "+l.Addr().String()+" is in use by another program") {
			t.Errorf("%s: exit code %d\n%s", answer, code, out)
		}
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Addresses of flags are checked as serve does: beyond loopback they need authentication and TLS.
func TestAddressOfFlag(t *testing.T) {
	s := newSetup(t)
	s.flags.HTTP = "0.0.0.0:0"
	if out, code := s.run(false); code != 3 || !strings.Contains(out, "command line  --http: refusing to serve on 0.0.0.0 without authentication") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A member that never answers costs its time limit only once, and hides no other.
func TestSilentMembers(t *testing.T) {
	s := newSetup(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 8 {
		s.agents += fmt.Sprintf(`, silent%d: {a2a: {card: "http://%s/%d"}}`, i, l.Addr(), i)
	}
	s.agents += `, up: {a2a: {card: "` + fakeagent.New(t, fakeagent.Config{}).URL() + `"}}`
	s.flags.Timeout = 300 * time.Millisecond
	start := time.Now()
	out, code := s.run(false)
	if code != 1 || strings.Count(out, "failed   agent silent") != 8 || !strings.Contains(out, "ok       agent up: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	t.Logf("took %s", time.Since(start))
}

// A program that ignores that it is stopped does not outlive its check.
func TestProgramsEnd(t *testing.T) {
	s := newSetup(t)
	file := filepath.Join(s.dir, "pid")
	script := fmt.Sprintf(`trap "" TERM; echo $$ > "%s.new"; mv "%s.new" "%s"; sleep 101; sleep 102`, file, file, file)
	s.agents += `, clerk: {model: fast, instructions: sell, tools: [deaf]}`
	s.models = `fast: {provider: openai, name: m, base_url: "` + lists(t, "", "m") + `"}`
	s.tools = "deaf: {mcp: {command: [sh, -c, '" + script + "']}}"
	s.flags.Timeout = 2 * time.Second
	start := time.Now()
	out, code := s.run(false)
	t.Logf("took %s", time.Since(start))
	if code != 1 || !strings.Contains(out, "failed   tool deaf: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for range 500 { // the process that has adopted the dead ones may need a moment
		if err := exec.CommandContext(t.Context(), "kill", "-0", "--", "-"+strings.TrimSpace(string(text))).Run(); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("its processes are still there")
}
