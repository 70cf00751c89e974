package tests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/server"
	"github.com/agentteams/team-server/tests/rig"
)

// twoAccounts are keys of two accounts, and that of an administrator.
var twoAccounts = []*teamv1.ApiKey{rig.Key("acme", "ann"), rig.Key("other", "bob"), administrator()}

func administrator() *teamv1.ApiKey { return rig.Admin("ops", "root") }

// setLimits sets the limits of account acme over the API, or removes them.
func setLimits(t *testing.T, target rig.Target, l *teamv1.AccountLimits) {
	t.Helper()
	root, err := rig.NewGRPC(target.As("ops", "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := teamv1.NewAccountServiceClient(root.Conn).SetAccountLimits(root.Context(t.Context()), &teamv1.SetAccountLimitsRequest{Account: "acme", Limits: l}); err != nil {
		t.Fatal(err)
	}
}

// limitedAs fails unless an error says that account acme has reached a limit, and when to try again.
func limitedAs(t *testing.T, err error, limit, value string) {
	t.Helper()
	f := rig.Fault(err)
	if f == nil || f.Code != "ResourceExhausted" || f.Reason != agent.ReasonInsufficientResources || f.Retry <= 0 ||
		f.Details["limit"] != limit || f.Details["value"] != value || f.Details["account"] != "acme" || !strings.Contains(f.Message, limit) {
		t.Fatalf("the error is %+v, want that %s of %s is reached", f, limit, value)
	}
	if f.HTTP != 0 && f.HTTP != http.StatusTooManyRequests && f.RPC == 0 {
		t.Errorf("HTTP status %d", f.HTTP)
	}
}

// TestP11_RequestsOfAnAccount has one account make more requests than it may, over each binding. It is told
// when to try again; the requests of another account are answered.
func TestP11_RequestsOfAnAccount(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{
		Agents:   rig.Manager(t, says("echo")),
		Settings: rig.Keys(twoAccounts...),
	})
	setLimits(t, target, &teamv1.AccountLimits{RequestsPerSecond: proto.Float64(0.001), Burst: proto.Int32(3)})
	known := rig.NewREST(target.As("acme", "ann"))
	for i := range 3 {
		if _, err := known.Send(t.Context(), rig.Text("echo", fmt.Sprint(i), "hi")); err != nil {
			t.Fatal(err)
		}
	}
	rig.Each(t, target.As("acme", "ann"), func(t *testing.T, c rig.Client) {
		_, err := c.Send(t.Context(), rig.Text("echo", "one-more", "hi"))
		limitedAs(t, err, "requests_per_second", "0.001")
		for _, err := range c.Stream(t.Context(), rig.Text("echo", "a-stream", "hi")) {
			limitedAs(t, err, "requests_per_second", "0.001")
		}
	})
	answer, err := target.As("acme", "ann").Do(t.Context(), http.MethodGet, "/echo/tasks", nil, nil)
	if err != nil || answer.Status != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("%+v, %v", answer, err)
	}
	flooded, err := rig.NewGRPC(target.As("acme", "ann"))
	if err != nil {
		t.Fatal(err)
	}
	defer flooded.Close()
	for _, c := range []rig.Client{flooded, known} { // what stops work is not limited
		_, err := c.Cancel(t.Context(), &a2av1.CancelTaskRequest{Tenant: "echo", Id: "none"})
		if f := rig.Fault(err); f == nil || f.Reason != "TASK_NOT_FOUND" {
			t.Errorf("canceling over %s: %+v", c.Binding(), f)
		}
	}
	rig.Each(t, target.As("other", "bob"), func(t *testing.T, c rig.Client) {
		for i := range 20 {
			if _, err := c.Send(t.Context(), rig.Text("echo", fmt.Sprint(c.Binding(), i), "hi")); err != nil {
				t.Fatal(err)
			}
		}
	})
	setLimits(t, target, nil)
	if _, err := known.Send(t.Context(), rig.Text("echo", "without-limits", "hi")); err != nil {
		t.Error(err)
	}
}

// TestP11_RequestsOfAPrincipal has one principal of an account make more requests than each of them may, over
// each binding. The others of its account are answered.
func TestP11_RequestsOfAPrincipal(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(append(slices.Clone(twoAccounts), rig.Key("acme", "zoe"))...)})
	setLimits(t, target, &teamv1.AccountLimits{PerPrincipal: &teamv1.PrincipalLimits{RequestsPerSecond: proto.Float64(0.001), Burst: proto.Int32(3)}})
	for i := range 3 {
		if _, err := rig.NewREST(target.As("acme", "ann")).Send(t.Context(), rig.Text("echo", fmt.Sprint(i), "hi")); err != nil {
			t.Fatal(err)
		}
	}
	rig.Each(t, target.As("acme", "ann"), func(t *testing.T, c rig.Client) {
		_, err := c.Send(t.Context(), rig.Text("echo", "one-more", "hi"))
		limitedAs(t, err, "per_principal.requests_per_second", "0.001")
		if f := rig.Fault(err); f.Details["principal"] != "ann" || !strings.Contains(f.Message, `principal "ann" of account "acme"`) {
			t.Errorf("%+v", f)
		}
	})
	if _, err := rig.NewREST(target.As("acme", "zoe")).Send(t.Context(), rig.Text("echo", "of-zoe", "hi")); err != nil {
		t.Error(err)
	}
	setLimits(t, target, nil)
}

// TestP11_StreamsOfAPrincipal has a principal open more streams than it may. The error names the limit and
// whose it is; another principal of the account opens one.
func TestP11_StreamsOfAPrincipal(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	slow := &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return agent.NewMessage("done"), nil
	}}
	target := rig.Serve(t, server.Config{
		Agents:   rig.Manager(t, slow, says("echo")),
		Settings: &teamv1.ServerSettings{Auth: rig.Auth(append(slices.Clone(twoAccounts), rig.Key("acme", "zoe"))...), Streams: &teamv1.StreamSettings{PerCaller: proto.Int32(1)}},
	})
	ann := rig.NewREST(target.As("acme", "ann"))
	began := make(chan error, 100)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer open()
	reading.Go(func() {
		for _, err := range ann.Stream(t.Context(), rig.Text("slow", "first", "hi")) {
			began <- err
		}
	})
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	rig.Each(t, target.As("acme", "ann"), func(t *testing.T, c rig.Client) {
		for _, err := range c.Stream(t.Context(), rig.Text("echo", "second-"+c.Binding(), "hi")) {
			limitedAs(t, err, "streams.per_caller", "1")
			if f := rig.Fault(err); f.Details["principal"] != "ann" || f.Details["max_streams"] != "1" {
				t.Errorf("%+v", f)
			}
		}
	})
	for _, err := range rig.NewREST(target.As("acme", "zoe")).Stream(t.Context(), rig.Text("echo", "of-zoe", "hi")) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestP11_FaultsOverTheAPI: what is wrong with limits of principals is named by its path in JSON.
func TestP11_FaultsOverTheAPI(t *testing.T) {
	t.Parallel()
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	answer, err := target.As("ops", "root").Do(t.Context(), http.MethodPut, "/team/v1/accounts/acme",
		[]byte(`{"limits": {"burst": 1, "perPrincipal": {"maxQueued": 0, "maxUploadBytes": "5"}}}`), map[string]string{"Content-Type": "application/json"})
	if err != nil || answer.Status != http.StatusBadRequest {
		t.Fatalf("%+v, %v", answer, err)
	}
	text, err := answer.Body()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"limits.burst", "limits.perPrincipal.maxQueued", "limits.perPrincipal.maxUploadBytes"} {
		if !strings.Contains(string(text), field) {
			t.Errorf("%s does not name %s", text, field)
		}
	}
}

// TestP11_TasksOfAPrincipal limits how many tasks of a principal run and wait. Another one of its account
// runs as many.
func TestP11_TasksOfAPrincipal(t *testing.T) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		store, _ := at.Open(t)
		gate := make(chan struct{})
		running := make(chan struct{}, 100)
		slow := &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			running <- struct{}{}
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return agent.NewMessage("done"), nil
		}}
		target := rig.Serve(t, server.Config{
			Agents:   rig.Manager(t, slow, says("echo")),
			Store:    store,
			Settings: &teamv1.ServerSettings{Auth: rig.Auth(append(slices.Clone(twoAccounts), rig.Key("acme", "zoe"))...), Accounts: map[string]*teamv1.AccountLimits{"acme": {PerPrincipal: &teamv1.PrincipalLimits{MaxRunning: proto.Int32(2), MaxQueued: proto.Int32(3)}}}},
		})
		begin := func(principal string) (begun int, err error) {
			c, err := rig.NewGRPC(target.As("acme", principal))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for ; err == nil && begun < 20; begun++ {
				req := rig.Text("slow", fmt.Sprint(principal, begun), "x")
				req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
				_, err = c.Send(within(t), req)
			}
			return begun - 1, err
		}
		all := 0
		for _, principal := range []string{"ann", "zoe"} {
			n, err := begin(principal)
			limitedAs(t, err, "per_principal.max_queued", "3")
			if n < 3 || n > 5+1 { // two run, three wait, and the first may have been counted before they ran
				t.Errorf("%d tasks of %s have begun", n, principal)
			}
			all += n
			for range 2 { // the other one's run as well
				select {
				case <-running:
				case <-within(t).Done():
					t.Fatal("no more tasks are run")
				}
			}
		}
		echoes(t, []rig.Target{target}, 3)
		if n := len(running); n > 0 {
			t.Errorf("%d more tasks are run", n)
		}
		close(gate)
		completedBy(t, target, all, "ann", "zoe")
	})
}

// TestP21_CallsBeyondTheLimit has an account make more calls than a server works on. The next one is refused
// over each binding, with the time to try again; those of another account and those that stop work are not,
// nor are streams that are open counted.
func TestP21_CallsBeyondTheLimit(t *testing.T) {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	slow := &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return agent.NewMessage("done"), nil
	}}
	target := rig.Serve(t, server.Config{
		Agents:   rig.Manager(t, slow, says("echo")),
		Settings: &teamv1.ServerSettings{Auth: rig.Auth(twoAccounts...), Limits: &teamv1.LimitSettings{MaxCalls: proto.Int32(18)}},
	})
	acme, err := rig.NewGRPC(target.As("acme", "ann"))
	if err != nil {
		t.Fatal(err)
	}
	defer acme.Close()
	var calling sync.WaitGroup
	streaming, stop := context.WithCancel(t.Context())
	defer calling.Wait()
	defer open()
	defer stop()
	streams := make(chan error, 30)
	for i := range cap(streams) {
		calling.Go(func() {
			first := true
			for _, err := range acme.Stream(streaming, rig.Text("slow", fmt.Sprint("stream-", i), "hi")) {
				if first {
					streams <- err
				}
				first = false
			}
		})
		if err := <-streams; err != nil {
			t.Fatal("stream", i, err)
		}
	}
	answers := make(chan error, 30)
	for i := range cap(answers) {
		calling.Go(func() {
			_, err := acme.Send(t.Context(), rig.Text("slow", fmt.Sprint("call-", i), "hi"))
			answers <- err
		})
	}
	refused := func(err error) {
		t.Helper()
		f := rig.Fault(err)
		if f == nil || f.Reason != agent.ReasonInsufficientResources || f.Retry <= 0 || f.Details["limit"] != "max_calls" || f.Details["value"] != "18" {
			t.Fatalf("%+v", f)
		}
	}
	for range cap(answers) - 16 { // of 18, one account gets 16
		refused(<-answers)
	}
	rig.Each(t, target.As("acme", "ann"), func(t *testing.T, c rig.Client) {
		_, err := c.Send(t.Context(), rig.Text("slow", "one-more", "hi"))
		refused(err)
	})
	answer, err := target.As("acme", "ann").Do(t.Context(), http.MethodGet, "/echo/tasks", nil, nil)
	if err != nil || answer.Status != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("%+v, %v", answer, err)
	}
	if _, err := acme.Cancel(t.Context(), &a2av1.CancelTaskRequest{Tenant: "echo", Id: "none"}); rig.Fault(err) == nil || rig.Fault(err).Reason != "TASK_NOT_FOUND" {
		t.Errorf("canceling: %v", err)
	}
	echoes(t, []rig.Target{target}, 3)
	if answer, err := target.Do(t.Context(), http.MethodGet, "/readyz", nil, nil); err != nil || answer.Status != http.StatusOK {
		t.Errorf("%+v, %v", answer, err)
	}
	open()
	for range 16 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	rig.Each(t, target.As("acme", "ann"), func(t *testing.T, c rig.Client) {
		if _, err := c.Send(t.Context(), rig.Text("echo", "later-"+c.Binding(), "hi")); err != nil {
			t.Error(err)
		}
	})
}

// TestP11_TasksOfAnAccount limits what tasks of an account use: those that wait, those that run, and bytes.
// Limits are those of the file, of the API, or of every account.
func TestP11_TasksOfAnAccount(t *testing.T) {
	rig.EachStore(t, func(t *testing.T, at rig.Place) {
		store, _ := at.Open(t)
		gate := make(chan struct{})
		slow := &agent.Func{ID: "slow", Call: func(ctx context.Context, _ *a2av1.Message) (*a2av1.Message, error) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return agent.NewMessage("done"), nil
		}}
		target := rig.Serve(t, server.Config{
			Agents:   rig.Manager(t, slow, says("echo")),
			Store:    store,
			Settings: &teamv1.ServerSettings{Auth: rig.Auth(twoAccounts...), Limits: &teamv1.LimitSettings{Account: &teamv1.AccountLimits{MaxRunning: proto.Int32(2), MaxQueued: proto.Int32(3)}}},
		})
		c, err := rig.NewGRPC(target.As("acme", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		later := func(id, text string) error {
			req := rig.Text("slow", id, text)
			req.Configuration = &a2av1.SendMessageConfiguration{ReturnImmediately: true}
			_, err := c.Send(within(t), req)
			return err
		}
		sent := 0
		for err = nil; err == nil && sent < 20; sent++ {
			err = later(fmt.Sprint("m", sent), "x")
		}
		limitedAs(t, err, "max_queued", "3")
		if sent--; sent < 3 || sent > 5+1 { // two run, three wait, and the first may have been counted before they ran
			t.Errorf("%d tasks have begun", sent)
		}
		echoes(t, []rig.Target{target}, 3)
		close(gate)
		completed(t, target, sent)

		setLimits(t, target, &teamv1.AccountLimits{MaxStoredBytes: proto.Int64(20_000), MaxQueued: proto.Int32(1000)})
		for i := 0; err == nil || i == 0; i++ {
			if _, err = c.Send(within(t), rig.Text("slow", fmt.Sprint("b", i), strings.Repeat("x", 1000))); i > 100 {
				t.Fatal("no limit")
			}
		}
		limitedAs(t, err, "max_stored_bytes", "20000")
		echoes(t, []rig.Target{target}, 3)
	})
}

// TestT_31_BodiesWithAKey has an account hold 200 bodies of 4 MiB but for their last byte. It may have
// 32 MiB under way; the rest is refused, and the requests of others are answered.
func TestT_31_BodiesWithAKey(t *testing.T) {
	const bodies, size = 200, 4 << 20
	target := rig.Serve(t, server.Config{Agents: rig.Manager(t, says("echo")), Settings: rig.Keys(twoAccounts...)})
	end := make(chan struct{})
	var sending, ended sync.WaitGroup
	zeros := make([]byte, size)
	before := heapInUse()
	refused := make(chan int, bodies)
	for range bodies {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(target.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sending.Add(1)
		ended.Go(func() {
			fmt.Fprintf(conn, "POST /echo/message:send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme/ann\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
			_, _ = conn.Write(zeros[1:]) // fails where it is refused
			sending.Done()
			if answer, err := io.ReadAll(io.LimitReader(conn, 12)); err == nil && string(answer) == "HTTP/1.1 429" {
				refused <- 1
			}
			<-end
		})
	}
	sending.Wait()
	grown := heapInUse() - before
	if grown > 128<<20 {
		t.Errorf("%d bodies hold %d MiB", bodies, grown>>20)
	}
	began := time.Now()
	echoes(t, []rig.Target{target}, 3)
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("three calls of another account took %s", d)
	}
	for range bodies - 16 {
		<-refused
	}
	close(end)
	t.Logf("%d KiB", grown>>10)
}

// heapInUse is what this process uses, in bytes.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
