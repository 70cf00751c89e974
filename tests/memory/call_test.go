//go:build linux

package memory

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/tests/rig"
)

const (
	largeBytes = 1_900_000 // of the texts that are sent
	keptBytes  = 32 << 10  // of the beginning and of the end of an answer, which are looked at
)

// large is the text of large messages. Requests share it, so that attackers need little memory themselves.
var large = []byte(strings.Repeat("pearls of the sea ", largeBytes/18+1)[:largeBytes])

// send is a message to an agent, in any binding.
type send struct {
	tenant, id, context string
	text                []byte
	stream              bool
	push                string // URL of a webhook; "" for none
}

// call is a request over HTTP whose body is a text between a head and a tail.
type call struct {
	method, path string
	head         string
	text         []byte
	tail         string
	version      string
}

// bindings are the names of the bindings of A2A that attackers use.
var bindings = []string{"grpc", "rest", "jsonrpc", "jsonrpc/0.3"}

// http returns the message as a request of a binding over HTTP.
func (s send) http(binding string) call {
	extra, context := "", ""
	if s.push != "" {
		extra = fmt.Sprintf(`,"configuration":{"taskPushNotificationConfig":{"url":%q}}`, s.push)
	}
	if s.context != "" {
		context = fmt.Sprintf(`"contextId":%q,`, s.context)
	}
	message := fmt.Sprintf(`{"message":{%s"messageId":%q,"role":"ROLE_USER","parts":[{"text":"`, context, s.id)
	c := call{method: http.MethodPost, path: "/" + s.tenant + "/rpc", text: s.text, tail: `"}]}` + extra + `}}`, version: "1.0"}
	method := map[bool]string{false: "SendMessage", true: "SendStreamingMessage"}[s.stream]
	switch binding {
	case "rest":
		c.path, c.head, c.tail = "/"+s.tenant+"/message:"+map[bool]string{false: "send", true: "stream"}[s.stream], message, `"}]}`+extra+`}`
		return c
	case "jsonrpc/0.3":
		method, c.version = map[bool]string{false: "message/send", true: "message/stream"}[s.stream], "0.3"
		message = fmt.Sprintf(`{"message":{"kind":"message",%s"messageId":%q,"role":"user","parts":[{"kind":"text","text":"`, context, s.id)
	}
	c.head = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":`, method) + message
	return c
}

// grpc returns the message encoded for gRPC, with its text in a buffer of its own.
func (s send) grpc() (encoded, error) {
	req := &a2av1.SendMessageRequest{Tenant: s.tenant}
	if s.push != "" {
		req.Configuration = &a2av1.SendMessageConfiguration{TaskPushNotificationConfig: &a2av1.TaskPushNotificationConfig{Url: s.push}}
	}
	head, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	inner, err := proto.Marshal(&a2av1.Message{MessageId: s.id, ContextId: s.context, Role: a2av1.Role_ROLE_USER})
	if err != nil {
		return nil, err
	}
	part := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), uint64(len(s.text)))
	inner = protowire.AppendTag(inner, 5, protowire.BytesType)
	inner = protowire.AppendVarint(inner, uint64(len(part)+len(s.text)))
	inner = append(inner, part...)
	head = protowire.AppendVarint(protowire.AppendTag(head, 2, protowire.BytesType), uint64(len(inner)+len(s.text)))
	return encoded{append(head, inner...), s.text}, nil
}

// encoded is an encoded message in pieces.
type encoded [][]byte

// answer is a received message: its size, and what it is if it is small.
type answer struct {
	size int
	into proto.Message
}

// pieces is a codec that sends messages that are encoded already, and decodes only small ones.
type pieces struct{}

func (pieces) Name() string { return "proto" }

func (pieces) Marshal(v any) (out mem.BufferSlice, err error) {
	for _, b := range v.(encoded) {
		out = append(out, mem.SliceBuffer(b))
	}
	return out, nil
}

func (pieces) Unmarshal(data mem.BufferSlice, v any) error {
	a := v.(*answer)
	if a.size = data.Len(); a.size > keptBytes {
		return nil
	}
	return proto.Unmarshal(data.Materialize(), a.into)
}

// caller calls the server as the account that attacks.
type caller struct {
	http, grpc, key string
	elsewhere       string // address of what agents call
	conns           []*grpc.ClientConn
	tally           *tally
}

const grpcConns = 8

// dial returns a connection whose calls get no data that they do not read.
func dial(address string, wrap func(net.Conn) net.Conn) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(4<<20),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(pieces{}), grpc.MaxCallRecvMsgSize(20<<20)),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err == nil && wrap != nil {
				c = wrap(c)
			}
			return c, err
		}))
}

// method names of gRPC.
const (
	service   = "/lf.a2a.v1.A2AService/"
	sendCall  = service + "SendMessage"
	streaming = service + "SendStreamingMessage"
	getCall   = service + "GetTask"
	listCall  = service + "ListTasks"
	subscribe = service + "SubscribeToTask"
)

// overGRPC makes a call, waits, and reads what comes until the end.
func (c *caller) overGRPC(ctx context.Context, conn *grpc.ClientConn, method string, in encoded, wait time.Duration) string {
	ctx = metadata.AppendToOutgoingContext(ctx, "a2a-version", "1.0", "authorization", "Bearer "+c.key)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = s.SendMsg(in)
	}
	if err == nil || errors.Is(err, io.EOF) { // then the reason is received
		_ = s.CloseSend()
		err = nil
		pause(ctx, wait)
	}
	last := "answered"
	for err == nil {
		a := &answer{into: messageOf(method)}
		if err = s.RecvMsg(a); err == nil {
			last = stateOf(a.into, last)
		}
	}
	switch f := rig.Fault(rig.FromGRPC(err)); {
	case errors.Is(err, io.EOF):
		return last
	case ctx.Err() != nil:
		return cut
	case f.Reason == agent.ReasonInsufficientResources && f.Retry > 0:
		return refused
	case f.Reason == "":
		return "broken: " + f.Error()
	default:
		return "error " + f.Reason
	}
}

func messageOf(method string) proto.Message {
	switch method {
	case sendCall:
		return &a2av1.SendMessageResponse{}
	case getCall:
		return &a2av1.Task{}
	case listCall:
		return &a2av1.ListTasksResponse{}
	default:
		return &a2av1.StreamResponse{}
	}
}

// stateOf returns the state in a message, as an outcome; before if there is none.
func stateOf(m proto.Message, before string) string {
	var status *a2av1.TaskStatus
	switch r := m.(type) {
	case *a2av1.Task:
		status = r.GetStatus()
	case *a2av1.SendMessageResponse:
		status = r.GetTask().GetStatus()
	case *a2av1.StreamResponse:
		if status = r.GetStatusUpdate().GetStatus(); status == nil {
			status = r.GetTask().GetStatus()
		}
	}
	text, err := proto.Marshal(m)
	if status == nil || err != nil {
		return before
	}
	return outcomeOf(status.GetState().String(), string(text))
}

// What becomes of a call. Others begin with "failed", "error" or "broken".
const (
	refused   = "refused"
	completed = "completed"
	cut       = "cut by the caller"
)

// outcomeOf returns the outcome of a task with a state, and an error in its text.
func outcomeOf(state, text string) string {
	switch strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")) {
	case "completed":
		return completed
	case "failed", "rejected":
		for _, reason := range []string{agent.ReasonInsufficientResources, "INTERNAL", "MEMBER_FAILED"} {
			if strings.Contains(text, reason) {
				return "failed " + reason
			}
		}
		return "failed " + clip(text)
	default:
		return "answered"
	}
}

func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s)
	return s[max(0, len(s)-300):]
}

// overHTTP makes a call over a connection of its own, waits, and reads the answer.
func (c *caller) overHTTP(ctx context.Context, req call, wait time.Duration) string {
	conn, err := c.connect(ctx, wait > 0)
	if err != nil {
		return broken(ctx, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	wrote := make(chan error, 1)
	go func() { wrote <- c.write(conn, req) }()
	pause(ctx, wait)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), nil)
	if err != nil {
		return broken(ctx, err)
	}
	text, err := ends(resp.Body)
	if err != nil {
		return broken(ctx, fmt.Errorf("%w after %s", err, clip(text)))
	}
	return judge(resp, text)
}

// connect opens a connection. One that is not read has a small buffer.
func (c *caller) connect(ctx context.Context, unread bool) (net.Conn, error) {
	d := &net.Dialer{}
	if unread {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		}
	}
	return d.DialContext(ctx, "tcp", c.http)
}

// write writes a request.
func (c *caller) write(w io.Writer, r call) error {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAuthorization: Bearer %s\r\nA2A-Version: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		r.method, r.path, c.http, c.key, r.version, len(r.head)+len(r.text)+len(r.tail), r.head)
	for _, b := range [][]byte{[]byte(head), r.text, []byte(r.tail)} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// ends reads to the end, and returns the beginning and the end.
func ends(r io.Reader) (string, error) {
	head, err := io.ReadAll(io.LimitReader(r, keptBytes))
	if err != nil {
		return string(head), err
	}
	var tail []byte
	for chunk := make([]byte, keptBytes); ; {
		n, err := r.Read(chunk)
		tail = append(tail, chunk[:n]...)
		tail = bytes.Clone(tail[max(0, len(tail)-keptBytes):])
		if errors.Is(err, io.EOF) {
			return string(head) + string(tail), nil
		} else if err != nil {
			return string(head) + string(tail), err
		}
	}
}

// broken is the outcome of a connection that ended without an answer.
func broken(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return cut
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, "->"); found { // the ports differ
		_, text, _ = strings.Cut(after, " ")
	}
	return "broken: " + text
}

var (
	states  = regexp.MustCompile(`"state": ?"(?:TASK_STATE_)?([A-Za-z_-]+)"`)
	reasons = regexp.MustCompile(`"reason": ?"([A-Z_]+)"`)
	codes   = regexp.MustCompile(`"error": ?\{"code": ?(?:-|[1-5][0-9][0-9])`)
)

// judge returns the outcome of an answer over HTTP.
func judge(resp *http.Response, text string) string {
	reason := ""
	if all := reasons.FindAllStringSubmatch(text, -1); len(all) > 0 {
		reason = all[len(all)-1][1]
	}
	fault := resp.StatusCode != http.StatusOK || codes.MatchString(text)
	switch {
	case fault && reason == agent.ReasonInsufficientResources && (resp.Header.Get("Retry-After") != "" || strings.Contains(text, "retryDelay")):
		return refused
	case fault:
		return fmt.Sprintf("error %s %d", reason, resp.StatusCode)
	}
	all := states.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return "answered"
	}
	return outcomeOf(all[len(all)-1][1], text)
}

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
