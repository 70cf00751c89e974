package board

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/a2a"
)

// Sizes of texts, in bytes.
const (
	maxTitle = 200 // characters
	maxBody  = 16 << 10
	maxNote  = 4 << 10
)

var (
	idPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$`)
	opPattern = regexp.MustCompile(`^[!-~]{0,128}$`)
)

func validID(id string) bool { return idPattern.MatchString(id) }

// text is a field of a request with what it may hold.
type text struct {
	field, value string
	most         int
}

func (t text) check() error {
	if len(t.value) > t.most {
		return invalid(t.field, "has %d bytes, the most are %d", len(t.value), t.most)
	}
	return nil
}

// checkCall checks what all calls on an item have.
func checkCall(id, op string, texts ...text) error {
	if !validID(id) {
		return notFound(id)
	}
	return checkTexts(op, texts...)
}

func checkTexts(op string, texts ...text) error {
	for _, t := range texts {
		if err := t.check(); err != nil {
			return err
		}
	}
	if !opPattern.MatchString(op) {
		return invalid("op", "must be at most 128 printable characters of ASCII without a space")
	}
	return nil
}

func checkAdd(req *teamv1.AddWorkItemRequest) error {
	switch n := utf8.RuneCountInString(req.GetTitle()); {
	case strings.TrimSpace(req.GetTitle()) == "":
		return invalid("title", "is required")
	case n > maxTitle:
		return invalid("title", "has %d characters, the most are %d; put the rest into description", n, maxTitle)
	case req.GetItemId() != "" && !validID(req.GetItemId()):
		return invalid("itemId", "must be at most 63 letters, digits, _ and -, and begin with no -")
	case req.GetPriority() < 0 || req.GetPriority() > 5:
		return invalid("priority", "is %d, and must be 1 to 5", req.GetPriority())
	case req.GetMaxRetries() < 0 || req.GetMaxRetries() > 10:
		return invalid("maxRetries", "is %d, and must be 1 to 10", req.GetMaxRetries())
	}
	if err := checkNeeds("dependsOn", req.GetDependsOn()); err != nil {
		return err
	}
	return checkTexts(req.GetOp(), text{"description", req.GetDescription(), maxBody})
}

func checkNeeds(field string, ids []string) error {
	if len(ids) > maxNeeds {
		return invalid(field, "names %d items, the most are %d", len(ids), maxNeeds)
	}
	for i, id := range ids {
		if !validID(id) {
			return invalid(fmt.Sprintf("%s[%d]", field, i), "%.64q is no item of this board", id)
		}
	}
	return nil
}

func checkUpdate(req *teamv1.UpdateWorkItemRequest) error {
	needs := len(req.GetAddDependsOn()) > 0
	switch {
	case req.Progress != nil && (req.GetProgress() < 0 || req.GetProgress() > 100):
		return invalid("progress", "is %d, and must be 0 to 100", req.GetProgress())
	case needs && (req.Progress != nil || req.GetNote() != ""):
		return invalid("addDependsOn", "comes alone: an item that waits for more is held by nobody, who could say how far it is")
	}
	if err := checkNeeds("addDependsOn", req.GetAddDependsOn()); err != nil {
		return err
	}
	return checkCall(req.GetItemId(), req.GetOp(), text{"note", req.GetNote(), maxNote})
}

func checkMessage(p Place, req *teamv1.PostMessageRequest) error {
	account, name, principal := strings.Cut(req.GetTo(), "/")
	switch {
	case strings.TrimSpace(req.GetText()) == "":
		return invalid("text", "is required")
	case req.GetReplyTo() < 0:
		return invalid("replyTo", "is %d, and must be the seq of a message", req.GetReplyTo())
	case req.GetTo() == "" || p.in(req.GetTo()):
	case principal && account == p.Account && name != "":
		if err := checkName("to", req.GetTo()); err != nil {
			return err
		}
	default:
		return invalid("to", "%.64q is nobody here; those of the team are %s, others are %s/NAME, and without it is for all",
			req.GetTo(), strings.Join(append([]string{p.Team}, p.Members...), ", "), p.Account)
	}
	return checkTexts(req.GetOp(), text{"text", req.GetText(), maxBody})
}

// checkName checks the name of somebody who is looked for.
func checkName(field, name string) error {
	if len(name) > 256 || strings.ContainsRune(name, 0) {
		return invalid(field, "is no name of anybody")
	}
	return nil
}

func isNotFound(err error) bool { return errors.Is(err, a2a.ErrNotFound) }
