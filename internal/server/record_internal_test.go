package server

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestT_42_Failures: failures of the server are logged each, with their cause. The cause of other errors, which may
// quote the request, is not logged, and of those that are alike only some are.
func TestT_42_Failures(t *testing.T) {
	core, seen := observer.New(zapcore.InfoLevel)
	log := zap.New(core)
	s := &Server{log: log, requests: sampledRequests(log)}
	const many = 500
	for range many {
		for _, code := range []codes.Code{codes.Internal, codes.InvalidArgument} {
			r := s.newRecord()
			r.called("SendMessage", errors.New("canary"), status.New(code, "x"))
			s.finish(t.Context(), &inbound{binding: bindingREST, record: r})
		}
	}
	failures := seen.FilterField(zap.Stringer("code", codes.Internal))
	if n := failures.FilterFieldKey("error").Len(); n != many {
		t.Errorf("%d failures are logged with their cause, want %d", n, many)
	}
	refused := seen.FilterField(zap.Stringer("code", codes.InvalidArgument))
	if n := refused.Len(); n < logFirst || n > many/2 || refused.FilterFieldKey("error").Len() > 0 {
		t.Errorf("%d of %d refusals are logged, %d with a text", n, many, refused.FilterFieldKey("error").Len())
	}
}
