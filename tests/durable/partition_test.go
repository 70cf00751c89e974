//go:build linux

package durable

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/internal/store/sqlstore"
	"github.com/agentteams/team-server/internal/taskstate"
	"github.com/agentteams/team-server/internal/testkit/pgtest"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	// cutLease is the lease of the nodes here.
	cutLease = 3 * time.Second
	// failover is how long after a cut the runs of a node may still be its own: its lease, and the
	// 10 seconds for which the database keeps the locks of a client that does not answer.
	failover = cutLease + 10*time.Second + slack
	// cutClients is how many clients send tasks all the time.
	cutClients = 9
)

// cutConfig has agents whose steps take some time.
const cutConfig = `version: v1
agents:
  walker: {scripted: {steps: [{delay_ms: 400}, {text: "{{input}}."}]}}
teams:
  relay:
    members: [{agent: walker}]
    workflow:
      steps:
        - {id: one, agent: walker}
        - {id: two, agent: walker, after: [one]}
        - {id: left, agent: walker, after: [two]}
        - {id: right, agent: walker, after: [two]}
        - {id: last, agent: walker, after: [left, right]}
`

// watchWriters has the database note who writes each event, and who holds the run then. The transaction of
// the last events first releases the run.
const watchWriters = `
CREATE TABLE released (id TEXT PRIMARY KEY, holder TEXT);
CREATE FUNCTION note_release() RETURNS trigger AS $$ BEGIN
  INSERT INTO released VALUES (OLD.id, OLD.holder);
  RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER note_release AFTER UPDATE ON run FOR EACH ROW WHEN (OLD.ended IS NULL AND NEW.ended IS NOT NULL) EXECUTE FUNCTION note_release();
CREATE TABLE written (id TEXT, seq BIGINT, epoch BIGINT, holder TEXT, address TEXT);
CREATE FUNCTION note_writer() RETURNS trigger AS $$ BEGIN
  INSERT INTO written SELECT NEW.id, NEW.seq, run.epoch, coalesce(run.holder, released.holder), host(inet_client_addr())
  FROM run LEFT JOIN released ON released.id = run.id WHERE run.id = NEW.id;
  RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER note_writer AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION note_writer()`

// cutNode is a server in a network of its own.
type cutNode struct {
	*link
	*replica
	name   string
	conn   *grpc.ClientConn
	client a2av1.A2AServiceClient
}

// cutCluster are three of them, with their database and their clients.
type cutCluster struct {
	*testing.T
	store string
	nodes []*cutNode
	rand  *rand.Rand // of the episodes

	mu    sync.Mutex
	tasks map[string]a2av1.TaskState // acknowledged, with their ends; guarded by mu
}

// TestReplicas_P20_Partitions cuts servers off from the database while they work. Every event of a task
// is written by the server that holds it, tasks end once, what was acknowledged is not lost, and other
// servers take the runs over in time.
func TestReplicas_P20_Partitions(t *testing.T) {
	n := number(t, cutsVariable, 10)
	if !inOwnNetwork(t) {
		return
	}
	c := newCutCluster(t)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i := range cutClients {
		clients.Go(func() { c.send(ctx, i) })
	}
	var took []time.Duration
	for i := range n {
		took = append(took, c.episode(int(i)+1)...)
		if t.Failed() {
			break
		}
	}
	stop()
	clients.Wait()
	c.settled()
	c.check()
	slices.Sort(took)
	if len(took) > 0 {
		t.Logf("%d episodes, %d tasks; %d failovers, median %v, longest %v", n, len(c.tasks), len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	}
}

func newCutCluster(t *testing.T) *cutCluster {
	up := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up")
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pg := pgtest.NewIn(t, "10.77.0.0/16")
	s := seed(t)
	c := &cutCluster{T: t, store: pg.Schema(t), rand: rand.New(rand.NewPCG(s, 20)), tasks: map[string]a2av1.TaskState{}}
	config := filepath.Join(t.TempDir(), "team.yaml")
	if err := os.WriteFile(config, []byte(cutConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		n := &cutNode{link: newLink(t, i+1), name: name}
		store, err := url.Parse(c.store)
		if err != nil {
			t.Fatal(err)
		}
		store.Host = net.JoinHostPort(n.database(), store.Port())
		cmd := command{config: config, store: store.String(), dir: t.ArtifactDir(), prefix: n.prefix(), args: []string{"--lease=" + cutLease.String(), "--replica=" + name}}
		if n.replica, err = cmd.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.end(syscall.SIGKILL) })
		n.conn, err = grpc.NewClient("passthrough:///"+n.target.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(n.dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.conn.Close() })
		n.client = a2av1.NewA2AServiceClient(n.conn)
		c.nodes = append(c.nodes, n)
	}
	c.query(func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), watchWriters)
		return err
	})
	return c
}

// query uses a connection to the database.
func (c *cutCluster) query(use func(*pgx.Conn) error) {
	c.Helper()
	conn, err := pgx.Connect(context.Background(), c.store)
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := use(conn); err != nil {
		c.Fatal(err)
	}
}

// episode cuts one or two nodes off, each in one of the ways, and heals them: before their leases are
// over, or after other nodes have their runs. It returns how long that took.
func (c *cutCluster) episode(n int) (took []time.Duration) {
	c.Helper()
	cut := map[*cutNode]partition{}
	for _, i := range c.rand.Perm(len(c.nodes))[:1+c.rand.IntN(2)] {
		cut[c.nodes[i]] = partitions[c.rand.IntN(len(partitions))]
	}
	for node := range cut {
		c.await(node.name+" has runs", func() bool { return c.held(node) > 0 })
	}
	short := c.rand.IntN(4) == 0
	began := time.Now()
	var names []string
	for node, p := range cut {
		p.cut(c.T, node.link)
		names = append(names, node.name+": "+p.name)
	}
	slices.Sort(names)
	if short {
		c.pause(cutLease * time.Duration(1+c.rand.IntN(3)) / 4)
	}
	for node := range cut {
		if short || c.held(node) == 0 { // they ended just before
			continue
		}
		c.await("the runs of "+node.name+" have other owners", func() bool { return c.held(node) == 0 })
		took = append(took, time.Since(began))
		if last := took[len(took)-1]; last > failover {
			c.Errorf("episode %d: the runs of %s were its own for %v after it was cut off, with a lease of %v", n, node.name, last, cutLease)
		}
	}
	for node, p := range cut {
		p.heal(c.T, node.link)
	}
	c.Logf("episode %d: %s; short: %v, failovers %v", n, strings.Join(names, ", "), short, took)
	for node := range cut {
		c.await(node.name+" works again", func() bool { return c.begin(c.Context(), node, fmt.Sprintf("again-%d-%s", n, node.name)) != "" })
	}
	return took
}

// pause waits: a part of a lease is a time, and nothing else happens at its end.
func (c *cutCluster) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.Context().Done():
	}
}

// await waits until something is so.
func (c *cutCluster) await(what string, is func() bool) {
	c.Helper()
	await(c.T, what, is)
}

// held is how many runs that have not ended nodes hold.
func (c *cutCluster) held(nodes ...*cutNode) (n int) {
	c.Helper()
	c.query(func(conn *pgx.Conn) error {
		for _, node := range nodes {
			var own int
			if err := conn.QueryRow(c.Context(), `SELECT count(*) FROM run WHERE holder LIKE $1 AND ended IS NULL`, node.name+"-%").Scan(&own); err != nil {
				return err
			}
			n += own
		}
		return nil
	})
	return n
}

// send sends one task after the other, and waits for the end of each.
func (c *cutCluster) send(ctx context.Context, client int) {
	r := rand.New(rand.NewPCG(uint64(client), 77))
	for i := 0; ctx.Err() == nil; i++ {
		id, task := fmt.Sprintf("m-%d-%d", client, i), ""
		for task == "" && ctx.Err() == nil { // the same message, to any node
			task = c.begin(ctx, c.nodes[r.IntN(len(c.nodes))], id)
		}
		for ctx.Err() == nil && !c.ended(ctx, c.nodes[r.IntN(len(c.nodes))], task) {
			c.pause(50 * time.Millisecond)
		}
	}
}

// begin sends a message to a node. It returns the task, "" if it is not acknowledged.
func (c *cutCluster) begin(ctx context.Context, n *cutNode, id string) string {
	ctx, stop := context.WithTimeout(ctx, slack)
	defer stop()
	text := "go"
	if strings.ContainsAny(id[len(id)-1:], "13579") { // more than what is sent before the first answer
		text = strings.Repeat("a long way to go ", 10_000)
	}
	resp, err := n.client.SendMessage(ctx, &a2av1.SendMessageRequest{
		Tenant: "relay", Message: agent.UserMessage(id, text), Configuration: &a2av1.SendMessageConfiguration{ReturnImmediately: true},
	})
	task := resp.GetTask().GetId()
	if err != nil || task == "" {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.tasks[task]; !known {
		c.tasks[task] = resp.GetTask().GetStatus().GetState()
	}
	return task
}

// ended asks a node whether a task has ended, and compares the end with what was seen before.
func (c *cutCluster) ended(ctx context.Context, n *cutNode, id string) bool {
	ctx, stop := context.WithTimeout(ctx, slack)
	defer stop()
	task, err := n.client.GetTask(ctx, &a2av1.GetTaskRequest{Id: id})
	if err != nil {
		return false
	}
	state := task.GetStatus().GetState()
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.tasks[id]; taskstate.Final(was) && was != state {
		c.Errorf("task %s has ended as %v, and %s says %v", id, was, n.name, state)
	}
	c.tasks[id] = state
	return taskstate.Final(state)
}

// settled waits until all tasks have ended.
func (c *cutCluster) settled() {
	c.Helper()
	for id := range c.tasks {
		c.await("the end of "+id, func() bool { return c.ended(c.Context(), c.nodes[0], id) })
		for _, n := range c.nodes[1:] {
			c.await("the end of "+id+" on "+n.name, func() bool { return c.ended(c.Context(), n, id) })
		}
		if state := c.tasks[id]; state != a2av1.TaskState_TASK_STATE_COMPLETED {
			c.Errorf("task %s is %v", id, state)
		}
	}
}

// writer is who wrote an event.
type writer struct {
	epoch           int64
	holder, address string
}

// check compares each journal with who wrote it.
func (c *cutCluster) check() {
	c.Helper()
	writers := map[string]map[int64]writer{}
	c.query(func(conn *pgx.Conn) error {
		rows, err := conn.Query(context.Background(), `SELECT id, seq, epoch, coalesce(holder, ''), address FROM written`)
		if err != nil {
			return err
		}
		var id string
		var seq int64
		var w writer
		_, err = pgx.ForEachRow(rows, []any{&id, &seq, &w.epoch, &w.holder, &w.address}, func() error {
			if writers[id] == nil {
				writers[id] = map[int64]writer{}
			}
			writers[id][seq] = w
			return nil
		})
		return err
	})
	s, err := sqlstore.Open(context.Background(), c.store, sqlstore.Config{})
	if err != nil {
		c.Fatal(err)
	}
	defer s.Close()
	for id := range c.tasks {
		journal, err := events(context.Background(), s, runs.Key{Owner: rig.LocalOwner, ID: id})
		if err != nil || len(journal) == 0 {
			c.Errorf("task %s was acknowledged, and has %d events: %v", id, len(journal), err)
			continue
		}
		for _, fault := range c.history(journal, writers[id]) {
			c.Errorf("task %s: %s", id, fault)
		}
	}
}

// history says what is wrong with the history of a task: it is one line of epochs, each of one node that
// writes only while it holds the run.
func (c *cutCluster) history(journal []*teamv1.Event, writers map[int64]writer) (faults []string) {
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	var epoch int64
	var owner string
	ends, started := map[string]int{}, map[string]int64{}
	for i, ev := range journal {
		if ev.GetSeq() != int64(i+1) {
			wrong("event %d has sequence %d", i+1, ev.GetSeq())
		}
		if claimed := ev.GetClaimed(); claimed != nil {
			if claimed.GetEpoch() <= epoch {
				wrong("epoch %d follows epoch %d", claimed.GetEpoch(), epoch)
			}
			epoch = claimed.GetEpoch()
			owner, _, _ = strings.Cut(claimed.GetReplica(), "-")
		}
		if w, noted := writers[ev.GetSeq()]; noted && i > 0 {
			holder, _, _ := strings.Cut(w.holder, "-")
			if w.epoch != epoch || holder != owner || w.address != c.address(owner) {
				wrong("event %d is of epoch %d, owned by %s, and %s wrote it in epoch %d, held by %s", i+1, epoch, owner, w.address, w.epoch, holder)
			}
		} else if i > 0 {
			wrong("nobody wrote event %d", i+1)
		}
		scope := ev.GetScope()
		if ends[scope] > 0 || ends[""] > 0 {
			wrong("event %d of step %q follows its end", i+1, scope)
		}
		switch {
		case ev.GetStarted() != nil:
			if started[scope] == cmp.Or(epoch, -1) {
				wrong("step %q has begun twice in epoch %d", scope, epoch)
			}
			started[scope] = epoch
		case ev.GetEnded() != nil:
			ends[scope]++
		}
	}
	if ends[""] != 1 {
		wrong("it has %d ends", ends[""])
	}
	return faults
}

// address is that from which a node writes.
func (c *cutCluster) address(name string) string {
	for _, n := range c.nodes {
		if n.name == name {
			return n.node()
		}
	}
	return "nobody"
}
