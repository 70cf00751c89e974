package forms

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	a2av1 "github.com/agentteams/team-server/gen/lf/a2a/v1"
	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/spending"
	"github.com/agentteams/team-server/pkg/agent"
)

// FormatAmount formats an amount of the limit that r is about, with its unit. Negative amounts, which
// a faulty peer might report, count as 0.
func FormatAmount(r *teamv1.BudgetRequest, n int64) string {
	switch n = max(n, 0); {
	case !countsTokens(r):
		return spending.Dollars(n) + " USD"
	case n == 1:
		return "1 token"
	}
	return strconv.FormatInt(n, 10) + " tokens"
}

func countsTokens(r *teamv1.BudgetRequest) bool { return r.GetLimit() == agent.LimitMaxTokens }

// Largest amounts that an answer can grant.
const (
	maxGrantTokens = int64(1e15)
	maxGrantMicros = int64(1e15) // a billion USD
)

// amount matches a grant in words: a number, and its unit if there is one.
var amount = regexp.MustCompile(`^(-?[0-9]+(?:\.[0-9]+)?)\s*(usd|\$|dollars?|tokens?)?$`)

// ReadGrant returns what the answer m to the request r grants: an amount of the limit's unit, such as
// "2", "2 USD", "$2" or "5000 tokens", or as data {"grant": 2}. It returns nil if m declines, with
// "no" or {"grant": 0}. Any other answer is an error, which says what was expected.
func ReadGrant(r *teamv1.BudgetRequest, m *a2av1.Message) (*teamv1.Spent, error) {
	text, data, err := onlyPart(m)
	if err != nil {
		return nil, err
	}
	said := strings.ToLower(strings.TrimSpace(text))
	if data != nil {
		said = grantOf(data)
	}
	if rest, ok := strings.CutPrefix(said, "$"); ok {
		said = strings.TrimSpace(rest) + " usd"
	}
	if said == "no" {
		return nil, nil //nolint:nilnil // nothing is granted
	}
	of := amount.FindStringSubmatch(said)
	expected := `answer with the amount to add, such as "2 USD", or with "no"`
	if countsTokens(r) {
		expected = `answer with the number of tokens to add, such as "5000 tokens", or with "no"`
	}
	switch {
	case of == nil:
		return nil, fmt.Errorf("is not an amount; %s", expected)
	case of[2] != "" && strings.HasPrefix(of[2], "token") != countsTokens(r):
		return nil, fmt.Errorf("is in another unit than the limit %s; %s", r.GetLimit(), expected)
	}
	n, err := strconv.ParseFloat(of[1], 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, fmt.Errorf("is not an amount; %s", expected)
	}
	most := maxGrantTokens
	if !countsTokens(r) {
		n, most = n*1e6, maxGrantMicros
		if whole := math.Round(n); math.Abs(n-whole) < 1e-3 {
			n = whole // n is off by what float64 cannot represent
		}
	}
	switch {
	case n <= 0:
		return nil, fmt.Errorf("does not add anything; %s", expected)
	case n > float64(most):
		return nil, fmt.Errorf("is more than %s, the most that can be added at once; %s", FormatAmount(r, most), expected)
	case n != math.Trunc(n) && countsTokens(r):
		return nil, fmt.Errorf("is not a whole number of tokens; %s", expected)
	case n != math.Trunc(n):
		return nil, fmt.Errorf("has more than six decimal places; %s", expected)
	case countsTokens(r):
		return &teamv1.Spent{OutputTokens: int64(n)}, nil
	}
	return &teamv1.Spent{CostMicros: int64(n)}, nil
}

// onlyPart returns the text, or the data, of an answer that has only one of them.
func onlyPart(m *a2av1.Message) (text string, data any, err error) {
	n := 0
	for _, p := range m.GetParts() {
		switch {
		case agent.IsFile(p):
			return "", nil, errors.New("has a file; send the answer as one text part, or as one data part")
		case p.GetData() != nil:
			data = p.GetData().AsInterface()
			n++
		case strings.TrimSpace(p.GetText()) != "":
			text = p.GetText()
			n++
		}
	}
	if n > 1 {
		return "", nil, errors.New("has several parts; send the answer as one text part, or as one data part")
	}
	return text, data, nil
}

// grantOf returns the text form of the data of an answer; empty if it is not of the expected form.
func grantOf(data any) string {
	d, _ := data.(map[string]any)
	if len(d) != 1 {
		return ""
	}
	switch v := d["grant"].(type) {
	case float64:
		if v == 0 {
			return "no"
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		return strings.ToLower(strings.TrimSpace(v))
	}
	return ""
}
