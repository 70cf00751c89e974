package a2aclient_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/a2aclient"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/secret"
)

// cutter makes connections, which it can cut.
type cutter struct {
	mu     sync.Mutex
	conns  []net.Conn // guarded by mu
	dials  int        // guarded by mu
	refuse int        // how many of the next dials fail; guarded by mu
	every  int        // bytes that are read of a connection before it is cut; 0 is no limit; guarded by mu
	uncut  *a2aclient.Client
}

var errRefused = errors.New("connection refused")

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	if c.refuse > 0 || c.every > 0 && c.dials%2 == 0 {
		c.refuse = max(0, c.refuse-1)
		return nil, errRefused
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.conns = append(c.conns, conn)
	return &limited{Conn: conn, cutter: c}, nil
}

// limit cuts each connection after so many bytes, counted from now on, and refuses every
// second dial.
func (c *cutter) limit(every int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.every = every
}

// limited is a connection that its cutter limits.
type limited struct {
	net.Conn
	cutter *cutter
	read   int // one goroutine reads
}

func (l *limited) Read(b []byte) (int, error) {
	l.cutter.mu.Lock()
	every := l.cutter.every
	l.cutter.mu.Unlock()
	if every == 0 {
		return l.Conn.Read(b[:min(len(b), 64)]) // what is not read yet is not counted yet
	}
	if l.read >= every {
		_ = l.Close()
		return 0, errCut
	}
	n, err := l.Conn.Read(b[:min(len(b), every-l.read)])
	l.read += n
	return n, err
}

var errCut = errors.New("connection reset")

// cut closes all connections, and refuses the next so many.
func (c *cutter) cut(refuse int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns, c.refuse = nil, refuse
}

func (c *cutter) dialed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

// eachCut does the same in every way, over connections that can be cut.
func eachCut(t *testing.T, tenant string, resumes int, test func(*caller, *cutter)) {
	r := serveScene(t)
	for _, w := range ways(true) {
		t.Run(w.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), callTime)
			defer cancel()
			target := "http://" + r.HTTP + "/" + tenant
			if w.noCard {
				target = "grpc://" + r.GRPC + "/" + tenant
			}
			w.cfg.Token = secret.New("open")
			uncut, err := a2aclient.Open(ctx, target, w.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = uncut.Close() }()
			cut := &cutter{uncut: uncut}
			w.cfg.Dial, w.cfg.Resumes = cut.dial, resumes
			c, err := a2aclient.Open(ctx, target, w.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			test(&caller{T: t, Client: c, ctx: ctx}, cut)
		})
	}
}

// TestA_15_StreamsResume cuts each connection after some bytes, within events too: no
// response comes twice, and none is missing.
func TestA_15_StreamsResume(t *testing.T) {
	eachCut(t, "talker", 0, func(c *caller, cut *cutter) {
		if _, err := c.GetTask(c.ctx, &a2av1.GetTaskRequest{Id: "x"}); !errors.Is(err, a2aclient.ErrTaskNotFound) { // connects
			c.Fatal(err)
		}
		cut.limit(2 << 10)
		var got []*a2av1.StreamResponse
		for r, err := range c.StreamMessage(c.ctx, c.say("when?")) {
			if err != nil {
				c.Fatalf("after %d responses: %v", len(got), err)
			}
			got = append(got, r)
		}
		var want []*a2av1.StreamResponse
		task := got[0].GetTask().GetId()
		for r, err := range cut.uncut.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: task}, a2aclient.Cursor(got[0])) {
			if err != nil {
				c.Fatal(err)
			}
			want = append(want, r)
		}
		if diff := cmp.Diff(want, got[1:], protocmp.Transform()); diff != "" {
			c.Errorf("streamed with cuts (+), and at once (-):\n%s", diff)
		}
		if len(got) < 6 || cut.dialed() < 3 { // the first, one that is refused, and another
			c.Errorf("%d responses over %d connections", len(got), cut.dialed())
		}
	})
}

// TestA_14_SubscriptionsResume is the same behind a cursor.
func TestA_14_SubscriptionsResume(t *testing.T) {
	eachCut(t, "patient", 0, func(c *caller, cut *cutter) {
		task, seq := c.waiting()
		var kinds []string
		canceled := false
		for r, err := range c.SubscribeToTask(c.ctx, &a2av1.SubscribeToTaskRequest{Id: task.GetId()}, 0) {
			if err != nil {
				c.Fatal(err)
			}
			kinds = append(kinds, r.GetStatusUpdate().GetStatus().GetState().String())
			cut.cut(1)
			if canceled {
				continue
			}
			canceled = true
			if _, err := cut.uncut.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: task.GetId()}); err != nil {
				c.Fatal(err)
			}
		}
		if seq == 0 || kinds[0] != "TASK_STATE_UNSPECIFIED" || !slices.Contains(kinds, "TASK_STATE_CANCELED") {
			c.Errorf("states %v", kinds)
		}
	})
}

// TestA_15_ResumesAreBounded: a server that is gone is given up, with what is known.
func TestA_15_ResumesAreBounded(t *testing.T) {
	for resumes, most := range map[int]int{-1: 0, 2: 2} {
		eachCut(t, "patient", resumes, func(c *caller, cut *cutter) {
			req, task := c.say("wait"), ""
			var failed error
			n := 0
			for r, err := range c.StreamMessage(c.ctx, req) {
				if n++; err != nil {
					failed = err
					continue
				}
				task = r.GetTask().GetId() + r.GetStatusUpdate().GetTaskId()
				if agent.Text(r.GetStatusUpdate().GetStatus().GetMessage()) == "Waiting." {
					cut.cut(1 << 20)
				}
			}
			var broken *a2aclient.TransportError
			if !errors.As(failed, &broken) || broken.Address == "" || n < 2 {
				c.Errorf("after %d responses: %v", n, failed)
			}
			if broken := errors.Is(failed, a2aclient.ErrBroken); broken != (most == 0) || broken == errors.Is(failed, a2aclient.ErrUnreachable) {
				c.Errorf("%d tries: %v", most, failed)
			}
			if _, err := cut.uncut.CancelTask(c.ctx, &a2av1.CancelTaskRequest{Id: task}); err != nil {
				c.Fatal(err)
			}
		})
	}
}
