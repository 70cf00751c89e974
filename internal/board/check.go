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

// faults are those of a request.
type faults struct{ a2a.Faults }

// take adds those that another check has found.
func (f *faults) take(err error) {
	var e *a2a.Error
	if errors.As(err, &e) {
		f.Faults = append(f.Faults, e.Violations...)
	}
}

// onItem is Err for a call on an item.
func (f *faults) onItem(id string) error {
	if len(f.Faults) == 0 && !validID(id) {
		return notFound(id)
	}
	return f.Err()
}

// text is a field of a request with what it may hold.
type text struct {
	field, value string
	most         int
}

func (f *faults) texts(op string, texts ...text) {
	for _, t := range texts {
		if len(t.value) > t.most {
			f.Add(t.field, "has %d bytes, the most are %d", len(t.value), t.most)
		}
	}
	if !opPattern.MatchString(op) {
		f.Add("op", "must be at most 128 printable characters of ASCII without a space")
	}
}

// checkCall checks what all calls on an item have.
func checkCall(id, op string, texts ...text) error {
	var f faults
	f.texts(op, texts...)
	return f.onItem(id)
}

func checkAdd(req *teamv1.AddWorkItemRequest) error {
	var f faults
	switch n := utf8.RuneCountInString(req.GetTitle()); {
	case strings.TrimSpace(req.GetTitle()) == "":
		f.Add("title", "is required")
	case n > maxTitle:
		f.Add("title", "has %d characters, the most are %d; put the rest into description", n, maxTitle)
	}
	if req.GetItemId() != "" && !validID(req.GetItemId()) {
		f.Add("itemId", "must be at most 63 letters, digits, _ and -, and begin with no -")
	}
	if req.GetPriority() < 0 || req.GetPriority() > 5 {
		f.Add("priority", "is %d, and must be 1 to 5", req.GetPriority())
	}
	if req.GetMaxRetries() < 0 || req.GetMaxRetries() > 10 {
		f.Add("maxRetries", "is %d, and must be 1 to 10", req.GetMaxRetries())
	}
	f.needs("dependsOn", req.GetDependsOn())
	f.texts(req.GetOp(), text{"description", req.GetDescription(), maxBody})
	return f.Err()
}

func (f *faults) needs(field string, ids []string) {
	if len(ids) > maxNeeds {
		f.Add(field, "names %d items, the most are %d", len(ids), maxNeeds)
		return
	}
	for i, id := range ids {
		if !validID(id) {
			f.Add(fmt.Sprintf("%s[%d]", field, i), "%.64q is no item of this board", id)
		}
	}
}

func checkUpdate(req *teamv1.UpdateWorkItemRequest) error {
	var f faults
	if req.Progress != nil && (req.GetProgress() < 0 || req.GetProgress() > 100) {
		f.Add("progress", "is %d, and must be 0 to 100", req.GetProgress())
	}
	if len(req.GetAddDependsOn()) > 0 && (req.Progress != nil || req.GetNote() != "") {
		f.Add("addDependsOn", "comes alone: an item that waits for more is held by nobody, who could say how far it is")
	}
	f.needs("addDependsOn", req.GetAddDependsOn())
	f.texts(req.GetOp(), text{"note", req.GetNote(), maxNote})
	return f.onItem(req.GetItemId())
}

func checkMessage(p Place, req *teamv1.PostMessageRequest) error {
	var f faults
	if strings.TrimSpace(req.GetText()) == "" {
		f.Add("text", "is required")
	}
	if req.GetReplyTo() < 0 {
		f.Add("replyTo", "is %d, and must be the seq of a message", req.GetReplyTo())
	}
	account, name, principal := strings.Cut(req.GetTo(), "/")
	switch {
	case req.GetTo() == "" || p.in(req.GetTo()):
	case principal && account == p.Account && name != "":
		f.name("to", req.GetTo())
	default:
		f.Add("to", "%.64q is nobody here; those of the team are %s, others are %s/NAME, and without it is for all",
			req.GetTo(), strings.Join(append([]string{p.Team}, p.Members...), ", "), p.Account)
	}
	f.texts(req.GetOp(), text{"text", req.GetText(), maxBody})
	return f.Err()
}

// name checks the name of somebody who is looked for.
func (f *faults) name(field, name string) {
	if len(name) > 256 || strings.ContainsRune(name, 0) {
		f.Add(field, "is no name of anybody")
	}
}

func isNotFound(err error) bool { return errors.Is(err, a2a.ErrNotFound) }
