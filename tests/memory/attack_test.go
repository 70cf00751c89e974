//go:build linux

package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
)

// order is what an attacker is told, in the environment.
type order struct {
	Attack          string
	HTTP, GRPC, Key string
	Elsewhere       string
	Lasts           time.Duration
	Size            float64 // of the attack; 1 is the whole one
}

// report is what an attacker prints.
type report struct {
	Outcomes map[string]int
	Peak     int64 // of its own resident memory, in bytes
}

// tally counts outcomes.
type tally struct {
	mu  sync.Mutex
	all map[string]int // guarded by mu
}

func (t *tally) count(outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) < 100 || t.all[outcome] > 0 {
		t.all[outcome]++
	}
}

// attackerMemory limits what an attacker uses itself.
const attackerMemory = 1 << 30

// beAttacker attacks as ordered, and returns the exit code.
func beAttacker(text string) int {
	debug.SetMemoryLimit(attackerMemory)
	var o order
	if err := errors.Join(json.Unmarshal([]byte(text), &o), syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := &caller{http: o.HTTP, grpc: o.GRPC, key: o.Key, elsewhere: o.Elsewhere, tally: &tally{all: map[string]int{}}}
	for range grpcConns {
		conn, err := dial(o.GRPC, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer conn.Close()
		c.conns = append(c.conns, conn)
	}
	ctx, stop := context.WithCancel(context.Background()) // a deadline would be told to the server
	defer stop()
	defer time.AfterFunc(o.Lasts, stop).Stop()
	f := force{caller: c, size: o.Size, end: time.Now().Add(o.Lasts)}
	if attack := attacks[o.Attack]; attack != nil {
		attack(ctx, f)
	} else {
		f.mix(ctx)
	}
	c.tally.mu.Lock()
	defer c.tally.mu.Unlock()
	_, peak := memoryOf(os.Getpid())
	if err := json.NewEncoder(os.Stdout).Encode(report{c.tally.all, peak}); err != nil {
		return 1
	}
	return 0
}

// force makes an attack.
type force struct {
	*caller
	size float64
	end  time.Time
}

var serial atomic.Int64

// unique returns an id that no other message has.
func unique() string { return fmt.Sprintf("m-%d-%d", os.Getpid(), serial.Add(1)) }

// n returns a number of callers for the size of the attack.
func (f force) n(all int) int { return max(2, int(float64(all)*f.size)) }

// hold is how long answers are not read: less than the 30 seconds after which a server disconnects such readers.
func (f force) hold() time.Duration {
	return max(time.Second, min(20*time.Second, time.Until(f.end)-2*time.Second))
}

// gap is the pause of a caller between two large messages, so that the stores of the test stay small.
const gap = 2 * time.Second

// each has n callers call again and again.
func (f force) each(ctx context.Context, n int, call func(i int) string) {
	var calling sync.WaitGroup
	for i := range n {
		calling.Go(func() {
			for ctx.Err() == nil {
				outcome := call(i)
				f.tally.count(outcome)
				wait := gap
				if outcome != completed && outcome != "answered" {
					wait = 200 * time.Millisecond // it does not obey Retry-After
				}
				pause(ctx, wait)
			}
		})
	}
	calling.Wait()
}

// message sends a message over a binding, waits before it reads, and returns the outcome.
func (f force) message(ctx context.Context, binding string, i int, s send, wait time.Duration) string {
	if s.id == "" {
		s.id = unique()
	}
	if binding != "grpc" {
		return f.overHTTP(ctx, s.http(binding), wait)
	}
	in, err := s.grpc()
	if err != nil {
		return "error " + err.Error()
	}
	method := map[bool]string{false: sendCall, true: streaming}[s.stream]
	return f.overGRPC(ctx, f.conns[i%len(f.conns)], method, in, wait)
}

// to has callers of all bindings send large messages to an agent.
func to(tenant string, n int) func(context.Context, force) {
	return func(ctx context.Context, f force) {
		f.each(ctx, f.n(n), func(i int) string {
			return f.message(ctx, bindings[i%len(bindings)], i, send{tenant: tenant, text: large}, 0)
		})
	}
}

// burst has 100 callers of a binding send large messages at once.
func burst(binding string) func(context.Context, force) {
	return func(ctx context.Context, f force) {
		f.each(ctx, f.n(100), func(i int) string {
			return f.message(ctx, binding, i, send{tenant: "echo", text: large}, 0)
		})
	}
}

var taskID = regexp.MustCompile(`"id": ?"([0-9a-f-]{36})"`)

// task has an agent with a large answer work, and returns the id of its message and of its task. It repeats the call
// until it is not refused.
func (f force) task(ctx context.Context) (message, task string) {
	message = unique()
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		req := send{tenant: "talker", id: message, text: []byte("Talk.")}.http("rest")
		r, err := http.NewRequestWithContext(ctx, req.method, "http://"+f.http+req.path, strings.NewReader(req.head+string(req.text)+req.tail))
		if err != nil {
			return "", ""
		}
		r.Header.Set("Authorization", "Bearer "+f.key)
		r.Header.Set("A2A-Version", "1.0")
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			continue
		}
		text, _ := ends(resp.Body)
		_ = resp.Body.Close()
		if id := taskID.FindStringSubmatch(text); id != nil && resp.StatusCode == http.StatusOK {
			return message, id[1]
		}
	}
	return "", ""
}

// readers are the ways to read an answer.
var readers = map[string]func(force, context.Context, int, string, string) string{
	"grpc-stream": func(f force, ctx context.Context, i int, message, _ string) string {
		return f.message(ctx, "grpc", i, send{tenant: "talker", id: message, text: []byte("Talk."), stream: true}, f.hold())
	},
	"grpc-get": func(f force, ctx context.Context, i int, _, task string) string {
		in, _ := proto.Marshal(&a2av1.GetTaskRequest{Id: task})
		return f.overGRPC(ctx, f.conns[i%len(f.conns)], getCall, encoded{in}, f.hold())
	},
	"rest-get": func(f force, ctx context.Context, _ int, _, task string) string {
		return f.overHTTP(ctx, call{method: http.MethodGet, path: "/tasks/" + task, version: "1.0"}, f.hold())
	},
	"rest-stream": func(f force, ctx context.Context, i int, message, _ string) string {
		return f.message(ctx, "rest", i, send{tenant: "talker", id: message, text: []byte("Talk."), stream: true}, f.hold())
	},
	"jsonrpc-get": func(f force, ctx context.Context, _ int, _, task string) string {
		return f.overHTTP(ctx, call{method: http.MethodPost, path: "/rpc", head: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + task + `"}}`, version: "1.0"}, f.hold())
	},
	"jsonrpc-stream": func(f force, ctx context.Context, i int, message, _ string) string {
		return f.message(ctx, "jsonrpc", i, send{tenant: "talker", id: message, text: []byte("Talk."), stream: true}, f.hold())
	},
	"0.3-get": func(f force, ctx context.Context, _ int, _, task string) string {
		return f.overHTTP(ctx, call{method: http.MethodPost, path: "/rpc", head: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + task + `"}}`, version: "0.3"}, f.hold())
	},
	"0.3-stream": func(f force, ctx context.Context, i int, message, _ string) string {
		return f.message(ctx, "jsonrpc/0.3", i, send{tenant: "talker", id: message, text: []byte("Talk."), stream: true}, f.hold())
	},
	"list": func(f force, ctx context.Context, i int, _, _ string) string {
		if i%2 == 0 {
			in, _ := proto.Marshal(&a2av1.ListTasksRequest{IncludeArtifacts: proto.Bool(true), PageSize: proto.Int32(100)})
			return f.overGRPC(ctx, f.conns[i%len(f.conns)], listCall, encoded{in}, f.hold())
		}
		return f.overHTTP(ctx, call{method: http.MethodGet, path: "/tasks?includeArtifacts=true&pageSize=100", version: "1.0"}, f.hold())
	},
}

// unread has 250 readers of a kind that do not read.
func unread(kind string) func(context.Context, force) {
	return func(ctx context.Context, f force) {
		message, task := f.task(ctx)
		f.each(ctx, f.n(250), func(i int) string { return readers[kind](f, ctx, i, message, task) })
	}
}

// slowConn sends a megabyte, and then a byte now and then.
type slowConn struct {
	net.Conn
	left atomic.Int64
}

// Write implements net.Conn.
func (c *slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		step := min(len(b)-n, 16<<10)
		if c.left.Add(-int64(step)) < 0 {
			step = min(step, 1024)
			time.Sleep(500 * time.Millisecond)
		}
		var m int
		m, err = c.Conn.Write(b[n : n+step])
		n += m
	}
	return n, err
}

// trickle has callers whose messages arrive slowly, over HTTP and gRPC.
func trickle(ctx context.Context, f force) {
	f.each(ctx, f.n(200), func(i int) string {
		req := send{tenant: "echo", id: unique(), text: large}
		if i%2 == 0 {
			conn, err := f.connect(ctx, false)
			if err != nil {
				return broken(ctx, err)
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			slow := &slowConn{Conn: conn}
			slow.left.Store(1 << 20)
			_ = f.write(slow, req.http("rest")) // a server may refuse it meanwhile
			_, _ = io.Copy(io.Discard, conn)
			return "answered"
		}
		conn, err := dial(f.grpc, func(c net.Conn) net.Conn {
			slow := &slowConn{Conn: c}
			slow.left.Store(1 << 20)
			return slow
		})
		if err != nil {
			return "error " + err.Error()
		}
		defer conn.Close()
		in, err := req.grpc()
		if err != nil {
			return "error " + err.Error()
		}
		if outcome := f.overGRPC(ctx, conn, sendCall, in, 0); strings.Contains(outcome, "INTERNAL") {
			return outcome
		}
		return "answered"
	})
}

// attacks are the attacks by name.
var attacks = map[string]func(context.Context, force){
	"template-scripted": to("flood", 40),
	"template-step":     to("stepflood", 40),
	"template-planned":  to("planned", 40),
	"parallel-members":  to("eight", 60),
	"answers":           smallTo("talker", 60),
	"tool-results":      smallTo("tooluser", 60),
	"remote-answers":    smallTo("remote", 60),
	"model-and-history": func(ctx context.Context, f force) {
		f.each(ctx, f.n(40), func(i int) string {
			return f.message(ctx, bindings[i%len(bindings)], i, send{tenant: "talker", context: fmt.Sprint("c-", i%4), text: large}, 0)
		})
	},
	"webhooks": func(ctx context.Context, f force) {
		f.each(ctx, f.n(100), func(i int) string {
			return f.message(ctx, []string{"grpc", "rest", "jsonrpc"}[i%3], i, send{tenant: "echo", text: large, push: "http://" + f.elsewhere + "/hole"}, 0)
		})
	},
	"subscribers": func(ctx context.Context, f force) {
		f.each(ctx, f.n(100), func(i int) string {
			return f.message(ctx, bindings[i%len(bindings)], i, send{tenant: "slow", text: large, stream: true}, f.hold())
		})
	},
	"trickle": trickle,
}

// smallTo has callers of all bindings send small messages to an agent with large answers.
func smallTo(tenant string, n int) func(context.Context, force) {
	return func(ctx context.Context, f force) {
		f.each(ctx, f.n(n), func(i int) string {
			return f.message(ctx, bindings[i%len(bindings)], i, send{tenant: tenant, text: []byte("Talk.")}, 0)
		})
	}
}

func init() {
	for _, b := range bindings {
		attacks["burst-"+b] = burst(b)
	}
	for kind := range readers {
		attacks["unread-"+kind] = unread(kind)
	}
}

// attackNames returns the names of all attacks, sorted.
func attackNames() []string { return slices.Sorted(maps.Keys(attacks)) }

// mixed is the part of its size that each attack of a mix has.
const mixed = 0.2

// mix makes all attacks at the same time, each with a fifth of its callers.
func (f force) mix(ctx context.Context) {
	var all sync.WaitGroup
	f.size *= mixed
	for _, attack := range attacks {
		all.Go(func() { attack(ctx, f) })
	}
	all.Wait()
}
