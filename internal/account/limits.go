package account

import (
	"fmt"
	"math"
	"strconv"
	"time"
	_ "time/tzdata" // time zones of accounts, also where the machine has none

	"google.golang.org/protobuf/proto"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cost"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// Limits are those of an account. What is not limited is Unlimited.
type Limits struct {
	PerDay   agent.Cost     // what may be spent on a day
	InFlight agent.Cost     // what may be reserved at the same time
	Zone     *time.Location // decides when a day begins
}

// LimitsOf returns the limits in l. An unknown time zone counts as UTC; see Check.
func LimitsOf(l *teamv1.AccountLimits) Limits {
	zone, err := time.LoadLocation(l.GetTimeZone()) // UTC if it is empty
	if err != nil {
		zone = time.UTC
	}
	out := Limits{PerDay: agent.NoLimit(), InFlight: agent.NoLimit(), Zone: zone}
	set := func(to *int64, is bool, n int64) {
		if is {
			*to = n
		}
	}
	set(&out.PerDay.Tokens, l != nil && l.MaxTokensPerDay != nil, l.GetMaxTokensPerDay())
	set(&out.PerDay.Micros, l != nil && l.MaxCostPerDay != nil, agent.Micros(l.GetMaxCostPerDay()))
	set(&out.InFlight.Tokens, l != nil && l.MaxTokensInFlight != nil, l.GetMaxTokensInFlight())
	set(&out.InFlight.Micros, l != nil && l.MaxCostInFlight != nil, agent.Micros(l.GetMaxCostInFlight()))
	return out
}

// LimitsMoney reports whether a limit on money is set.
func LimitsMoney(l *teamv1.AccountLimits) bool {
	return l != nil && (l.MaxCostPerDay != nil || l.MaxCostInFlight != nil)
}

// limitsSpending reports whether a limit on what tasks spend is set.
func limitsSpending(l *teamv1.AccountLimits) bool {
	return LimitsMoney(l) || l != nil && (l.MaxTokensPerDay != nil || l.MaxTokensInFlight != nil)
}

// CheckEvery calls fault for each fault of the limits of every account, as Check does. They must not
// limit what tasks spend.
func CheckEvery(l *teamv1.AccountLimits, fault func(field, what, instead string)) {
	if l == nil {
		return
	}
	Check(l, fault)
	for field, set := range map[string]bool{
		"max_tokens_per_day": l.MaxTokensPerDay != nil, "max_cost_per_day": l.MaxCostPerDay != nil,
		"max_tokens_in_flight": l.MaxTokensInFlight != nil, "max_cost_in_flight": l.MaxCostInFlight != nil, "time_zone": l.GetTimeZone() != "",
	} {
		if set {
			fault(field, field+" is only for a single account", "move it to server.accounts.NAME")
		}
	}
}

// checkUse calls fault for each fault in the limits on the use of the server.
func checkUse(l *teamv1.AccountLimits, fault func(field, what, instead string)) {
	checkCounts(fault, []counted32{
		{"weight", l.Weight, 1000}, {"max_running", l.MaxRunning, 1_000_000}, {"max_queued", l.MaxQueued, 1_000_000},
		{"max_collaborations", l.MaxCollaborations, 1_000_000}, {"burst", l.Burst, 1_000_000},
	})
	checkBytes(fault, "max_stored_bytes", l.MaxStoredBytes, 1)
	checkBytes(fault, "max_upload_bytes", l.MaxUploadBytes, leastUpload)
	checkRate(fault, l.RequestsPerSecond, l.Burst)
	each := l.GetPerPrincipal()
	if each == nil {
		return
	}
	of := func(field, what, instead string) { fault("per_principal."+field, what, instead) }
	checkCounts(of, []counted32{{"max_running", each.MaxRunning, 1_000_000}, {"max_queued", each.MaxQueued, 1_000_000}, {"burst", each.Burst, 1_000_000}})
	checkBytes(of, "max_upload_bytes", each.MaxUploadBytes, leastUpload)
	checkRate(of, each.RequestsPerSecond, each.Burst)
	if proto.Size(each) == 0 {
		fault("per_principal", "per_principal has no limit", "set one of its limits, for example max_running")
	}
}

// counted32 is a limit that is a number from 1 to most.
type counted32 struct {
	field string
	value *int32
	most  int32
}

func checkCounts(fault func(field, what, instead string), limits []counted32) {
	for _, n := range limits {
		if n.value != nil && (*n.value < 1 || *n.value > n.most) {
			fault(n.field, fmt.Sprintf("%s must be a number from 1 to %d", n.field, n.most), "correct it, or remove it to use the default")
		}
	}
}

func checkBytes(fault func(field, what, instead string), field string, value *int64, least int64) {
	if value != nil && (*value < least || *value > most) {
		fault(field, fmt.Sprintf("%s must be a number of bytes from %d to %d", field, least, int64(most)), "correct it, or remove it to use the default")
	}
}

func checkRate(fault func(field, what, instead string), perSecond *float64, burst *int32) {
	if r := perSecond; r != nil && !(*r >= 0.001 && *r <= 1e6) {
		fault("requests_per_second", "requests_per_second must be a number from 0.001 to 1000000", "correct it, or remove it for no limit")
	}
	if burst != nil && perSecond == nil {
		fault("burst", "burst has no effect without requests_per_second", "add requests_per_second, or remove burst")
	}
}

// leastUpload is the least value of max_upload_bytes: the largest body of a request.
const leastUpload = 4 << 20

// none reports whether no limit is set.
func none(l *teamv1.AccountLimits) bool {
	return !limitsSpending(l) && l.Weight == nil && l.MaxRunning == nil && l.MaxQueued == nil && l.MaxStoredBytes == nil &&
		l.MaxCollaborations == nil && l.RequestsPerSecond == nil && l.Burst == nil && l.MaxUploadBytes == nil &&
		l.PerPrincipal == nil
}

// Check calls fault for each fault of l: the field, what is wrong, and what to write instead.
func Check(l *teamv1.AccountLimits, fault func(field, what, instead string)) {
	if l == nil {
		return
	}
	if _, err := time.LoadLocation(l.GetTimeZone()); err != nil || l.GetTimeZone() == "Local" {
		fault("time_zone", "time_zone is not known", "write a name of the IANA database, such as Europe/Berlin, or remove it to use UTC")
	}
	for _, n := range []struct {
		field string
		value *int64
	}{{"max_tokens_per_day", l.MaxTokensPerDay}, {"max_tokens_in_flight", l.MaxTokensInFlight}} {
		if n.value != nil && (*n.value <= 0 || *n.value > most) {
			fault(n.field, n.field+" must be a number of tokens from 1 to "+strconv.FormatInt(most, 10), "correct it, or remove it for no limit")
		}
	}
	for _, n := range []struct {
		field string
		value *float64
	}{{"max_cost_per_day", l.MaxCostPerDay}, {"max_cost_in_flight", l.MaxCostInFlight}} {
		if n.value != nil && !(*n.value >= 1e-6 && *n.value*1e6 <= most) || n.value != nil && math.IsNaN(*n.value) {
			fault(n.field, n.field+" must be an amount in USD from 0.000001 to "+spending.Dollars(most), "correct it, or remove it for no limit")
		}
	}
	checkUse(l, fault)
	if none(l) {
		fault("", "no limit is set", "set one of its limits, for example max_tokens_per_day or max_running")
	}
}

// Day returns the day of a time, as YYYY-MM-DD.
func (l Limits) Day(t time.Time) string { return t.In(l.Zone).Format(time.DateOnly) }

// Reset returns the beginning of the day after that of a time.
func (l Limits) Reset(t time.Time) time.Time {
	y, m, d := t.In(l.Zone).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, l.Zone)
}

// firstHour returns the first whole hour of the day of a time, as costs are kept.
func (l Limits) firstHour(t time.Time) int64 {
	y, m, d := t.In(l.Zone).Date()
	return cost.HourOf(time.Date(y, m, d, 0, 0, 0, 0, l.Zone).Add(time.Hour - 1))
}

// Keys in the Details of an error that reports a limit of an account, besides those of a budget.
const (
	// DetailReset is the key of the time at which the day ends, as in RFC 3339; it is absent if the
	// limit is not one of the day.
	DetailReset = "reset_time"
)

// tooMuchGranted returns the error for an answer that grants a task more than what is left of the day.
func (l Limits) tooMuchGranted(account string, left, grant agent.Cost, now time.Time) *agent.Error {
	limit, unit, show := "max_tokens_per_day", " tokens", func(n int64) string { return strconv.FormatInt(n, 10) }
	value, granted, remains := l.PerDay.Tokens, grant.Tokens, left.Tokens
	if grant.Tokens <= left.Tokens {
		limit, unit, show, value, granted, remains = "max_cost_per_day", " USD", spending.Dollars, l.PerDay.Micros, grant.Micros, left.Micros
	}
	reset := l.Reset(now)
	has, instead := "may spend only "+show(remains)+unit+" more", "grant at most "+show(remains)+unit
	if remains == 0 {
		has, instead = "may spend nothing more", "answer \"no\""
	} else {
		instead += ", answer \"no\","
	}
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonAccountLimit,
		"the answer grants %s%s, and account %q %s on this day, because its %s is %s%s; the question stays open: %s or answer again on the next day, which begins at %s",
		show(granted), unit, account, has, limit, show(value), unit, instead, reset.Format(time.RFC3339))
	e.Retry, e.RetryAfter = true, max(reset.Sub(now), time.Second)
	return e.With(agent.DetailLimit, limit).With(agent.DetailValue, show(value)).With(agent.DetailSetBy, agent.SetByAccount).
		With(agent.DetailAccount, account).With(DetailReset, reset.UTC().Format(time.RFC3339))
}

// reached returns the error for an amount that an account does not cover.
func (l Limits) reached(account string, use Use, need agent.Cost, now time.Time) *agent.Error {
	var limit, used int64
	var name string
	money, daily := false, false
	for _, of := range []struct {
		name              string
		limit, used, need int64
		money, daily      bool
	}{
		{"max_tokens_per_day", l.PerDay.Tokens, use.Spent.Tokens + use.Held.Tokens, need.Tokens, false, true},
		{"max_cost_per_day", l.PerDay.Micros, use.Spent.Micros + use.Held.Micros, need.Micros, true, true},
		{"max_tokens_in_flight", l.InFlight.Tokens, use.InFlight.Tokens, need.Tokens, false, false},
		{"max_cost_in_flight", l.InFlight.Micros, use.InFlight.Micros, need.Micros, true, false},
	} {
		if of.limit != agent.Unlimited && of.used+of.need > of.limit {
			name, limit, used, money, daily = of.name, of.limit, of.used, of.money, of.daily
			break
		}
	}
	show, unit, needed := func(n int64) string { return strconv.FormatInt(n, 10) }, " tokens", need.Tokens
	if money {
		show, unit, needed = spending.Dollars, " USD", need.Micros
	}
	e := agent.Errorf(agent.CodeResourceExhausted, agent.ReasonAccountLimit,
		"account %q cannot spend more now: its %s is %s%s, %s of it are spent or reserved, and %s are needed", account, name, show(limit), unit, show(used), show(needed))
	e = e.With(agent.DetailLimit, name).With(agent.DetailValue, show(limit)).With(agent.DetailSetBy, agent.SetByAccount).With(agent.DetailAccount, account)
	if daily {
		reset := l.Reset(now)
		e.Message += "; its next day begins at " + reset.Format(time.RFC3339)
		e = e.With(DetailReset, reset.UTC().Format(time.RFC3339))
	} else {
		e.Message += "; try again when other tasks of the account have ended"
	}
	return e
}
