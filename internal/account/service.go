package account

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/audit"
	"github.com/agentteams/team-server/internal/identity"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// own stands for the account of the caller, where a path needs a name.
const own = "-"

// SetAccountLimits implements the RPC.
func (a *Accounts) SetAccountLimits(ctx context.Context, req *teamv1.SetAccountLimitsRequest) (*teamv1.SetAccountLimitsResponse, error) {
	who, err := identity.Require(ctx, identity.PermissionAdmin)
	if err != nil {
		return nil, err
	}
	name := req.GetAccount()
	if !identity.ValidAccount(name) {
		return nil, a2aerror.Invalid(agent.Violation{Field: "account", Description: "must be an account: " + identity.AccountRule})
	}
	if a.inFile(name) {
		return nil, a2aerror.Invalid(agent.Violation{Field: "account", Description: "has its limits in the server's configuration file (server.accounts); change them there"})
	}
	s := Stored{Account: name, Changed: a.c.Clock(), ChangedBy: who.Owner()}
	if req.Limits != nil {
		if err := checkRequest(req.GetLimits()); err != nil {
			return nil, err
		}
		s.Limits = proto.CloneOf(req.GetLimits())
	}
	err = a.c.Ledger.PutAccountLimits(audit.Record(ctx, a.c.Clock(), "account.limits", name, nil), s)
	if err == nil {
		err = a.refresh(ctx)
	}
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	got, err := a.account(ctx, name)
	return &teamv1.SetAccountLimitsResponse{Account: got}, err
}

// checkRequest returns an INVALID_REQUEST error with every fault of limits.
func checkRequest(l *teamv1.AccountLimits) error {
	var faults []agent.Violation
	Check(l, func(field, what, instead string) {
		at := "limits"
		if field == "" {
			what = "has no limit"
		} else {
			at += "." + jsonName(l.ProtoReflect().Descriptor(), field)
		}
		faults = append(faults, agent.Violation{Field: at, Description: what + "; " + instead})
	})
	if len(faults) == 0 {
		return nil
	}
	return a2aerror.Invalid(faults...)
}

// jsonName returns the path of a field in JSON.
func jsonName(in protoreflect.MessageDescriptor, field string) string {
	name, rest, nested := strings.Cut(field, ".")
	f := in.Fields().ByName(protoreflect.Name(name))
	if !nested {
		return f.JSONName()
	}
	return f.JSONName() + "." + jsonName(f.Message(), rest)
}

// GetAccount implements the RPC.
func (a *Accounts) GetAccount(ctx context.Context, req *teamv1.GetAccountRequest) (*teamv1.GetAccountResponse, error) {
	who, ok := identity.CallerOf(ctx)
	name := req.GetAccount()
	if ok && (name == "" || name == own) {
		name = who.Account
	}
	if !ok || name != who.Account {
		if _, err := identity.Require(ctx, identity.PermissionAdmin); err != nil {
			return nil, err
		}
	}
	if !identity.ValidAccount(name) {
		return nil, a2aerror.Invalid(agent.Violation{Field: "account", Description: "must be an account: " + identity.AccountRule})
	}
	got, err := a.account(ctx, name)
	return &teamv1.GetAccountResponse{Account: got}, err
}

// ListAccounts implements the RPC. A page token is the last account of the page before.
func (a *Accounts) ListAccounts(ctx context.Context, req *teamv1.ListAccountsRequest) (*teamv1.ListAccountsResponse, error) {
	if _, err := identity.Require(ctx, identity.PermissionAdmin); err != nil {
		return nil, err
	}
	size, err := a2aerror.PageSize("pageSize", req.GetPageSize())
	if err != nil {
		return nil, err
	}
	if t := req.GetPageToken(); t != "" && !identity.ValidAccount(t) {
		return nil, runs.StoreError("", runs.ErrPageToken)
	}
	if err := a.refresh(ctx); err != nil {
		return nil, runs.StoreError("", err)
	}
	names := a.names()
	at, found := slices.BinarySearch(names, req.GetPageToken())
	if found {
		at++
	}
	names = names[at:]
	resp := &teamv1.ListAccountsResponse{}
	if len(names) > size {
		names = names[:size]
		resp.NextPageToken = names[size-1]
	}
	for _, name := range names {
		got, err := a.account(ctx, name)
		if err != nil {
			return nil, err
		}
		resp.Accounts = append(resp.Accounts, got)
	}
	return resp, nil
}

func (a *Accounts) inFile(name string) bool {
	_, ok := a.file()[name]
	return ok
}

// account returns an account as callers see it.
func (a *Accounts) account(ctx context.Context, name string) (*teamv1.Account, error) {
	l, limited, err := a.limits(ctx, name)
	if err != nil {
		return nil, runs.StoreError("", err)
	}
	got := &teamv1.Account{Account: name}
	if limited {
		now := a.c.Clock()
		use, err := a.c.Ledger.Use(ctx, name, l.Day(now))
		if err != nil {
			return nil, runs.StoreError("", err)
		}
		got.Day, got.ResetTime = l.Day(now), timestamppb.New(l.Reset(now))
		got.Spent, got.Reserved, got.InFlight = amountOf(use.Spent), amountOf(use.Held), amountOf(use.InFlight)
	}
	if got.Limits, got.InFile = a.file()[name]; got.GetInFile() {
		return got, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.stored[name]; ok {
		got.Limits, got.Changed, got.ChangedBy = s.Limits, timestamppb.New(s.Changed), s.ChangedBy
	}
	return got, nil
}

func amountOf(c agent.Cost) *teamv1.AccountAmount {
	return &teamv1.AccountAmount{Tokens: c.Tokens, CostMicros: c.Micros}
}
