package call

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/settings"
	"github.com/agentteams/team-server/internal/wire"
	"github.com/agentteams/team-server/pkg/agent"
)

// TestT_42_Failures: failures of the server are logged each, with their cause. The cause of other errors, which may
// quote the request, is not logged, and of those that are alike only some are.
func TestT_42_Failures(t *testing.T) {
	core, seen := observer.New(zapcore.InfoLevel)
	log := zap.New(core)
	s := &Chain{log: log, config: Config{Settings: settings.Of(nil)}}
	now := s.config.Settings.Load()
	const many = 500
	for range many {
		for _, code := range []codes.Code{codes.Internal, codes.InvalidArgument} {
			r := s.newRecord()
			r.setCall("SendMessage", nil)
			r.setResult(errors.New("canary"), status.New(code, "x"))
			s.Finish(t.Context(), &Inbound{Binding: REST, Record: r, Settings: now})
		}
	}
	failures := seen.FilterField(zap.Stringer("code", codes.Internal))
	if n := failures.FilterFieldKey("error").Len(); n != many {
		t.Errorf("%d failures are logged with their cause, want %d", n, many)
	}
	refused := seen.FilterField(zap.Stringer("code", codes.InvalidArgument))
	if n := refused.Len(); n < 20 || n > many/2 || refused.FilterFieldKey("error").Len() > 0 {
		t.Errorf("%d of %d refusals are logged, %d with a text", n, many, refused.FilterFieldKey("error").Len())
	}
}

// TestT_42_Reasons: the line of a request that is refused because of a limit names it, and one that fails because of the
// store has the level error and the cause.
func TestT_42_Reasons(t *testing.T) {
	core, seen := observer.New(zapcore.InfoLevel)
	s := &Chain{log: zap.New(core), config: Config{Settings: settings.Of(nil)}}
	for _, c := range []struct {
		err   *agent.Error
		level zapcore.Level
		field zap.Field
	}{
		{agent.Errorf(agent.CodeResourceExhausted, agent.ReasonInsufficientResources, "x").With(agent.DetailLimit, "requests_per_second"), zapcore.InfoLevel, zap.String("limit", "requests_per_second")},
		{agent.Errorf(agent.CodeUnavailable, agent.ReasonStoreUnavailable, "x"), zapcore.ErrorLevel, zap.String("error", "the disk is full")},
		{agent.Errorf(agent.CodeUnavailable, agent.ReasonShuttingDown, "x"), zapcore.InfoLevel, zap.String("reason", agent.ReasonShuttingDown)},
	} {
		r := s.newRecord()
		r.setResult(errors.New("the disk is full"), wire.Status(c.err))
		s.Finish(t.Context(), &Inbound{Binding: REST, Record: r, Settings: s.config.Settings.Load()})
		lines := seen.TakeAll()
		if len(lines) != 1 || lines[0].Level != c.level || lines[0].ContextMap()[c.field.Key] != c.field.String {
			t.Errorf("%s: the lines are %v, want one of level %s with %s %s", c.err.Reason, lines, c.level, c.field.Key, c.field.String)
		}
	}
}

// TestT_42_Sampling: of lines that are alike, as many are logged as the setting says, and it changes with a reload.
func TestT_42_Sampling(t *testing.T) {
	const many = 100
	for _, c := range []struct {
		of   *teamv1.LogSampling
		want int
	}{
		{nil, 20}, {&teamv1.LogSampling{Enabled: proto.Bool(false)}, many},
		{&teamv1.LogSampling{First: proto.Int32(7), Thereafter: proto.Int32(31)}, 10}, {&teamv1.LogSampling{First: proto.Int32(7), Thereafter: proto.Int32(0)}, 7},
	} {
		core, seen := observer.New(zapcore.InfoLevel)
		s := &Chain{log: zap.New(core), config: Config{Settings: settings.Of(nil)}}
		s.requestLog()
		s.config.Settings.Store(settings.Of(&teamv1.ServerSettings{Log: &teamv1.LogSettings{Sampling: c.of}}).Load())
		for range many {
			r := s.newRecord()
			r.setCall("SendMessage", nil)
			r.setResult(nil, status.New(codes.OK, ""))
			s.Finish(t.Context(), &Inbound{Binding: REST, Record: r, Settings: s.config.Settings.Load()})
		}
		if n := seen.Len(); n < c.want || n > c.want+c.want/2 { // more if a second begins in between
			t.Errorf("%+v: %d of %d requests are logged, want %d", c.of, n, many, c.want)
		}
	}
}
