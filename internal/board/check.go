package board

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/runs"
	"github.com/agentteams/team-server/pkg/a2aerror"
	"github.com/agentteams/team-server/pkg/agent"
)

// Maximum sizes of texts: titles in characters, others in bytes.
const (
	maxTitle = 200
	maxBody  = 16 << 10
	maxNote  = 4 << 10
)

var (
	idPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,62}$`)
	opPattern = regexp.MustCompile(`^[!-~]{0,128}$`)
)

func validID(id string) bool { return idPattern.MatchString(id) }

// faults collects the violations of a request.
type faults struct{ a2aerror.Faults }

// add adds the violations of another check.
func (f *faults) add(err error) {
	var e *a2aerror.Error
	if errors.As(err, &e) {
		f.Faults = append(f.Faults, e.Violations...)
	}
}

// onItem returns the error for a call on an item: the collected violations or, if there are
// none and the ID is invalid, WORK_ITEM_NOT_FOUND.
func (f *faults) onItem(id string) error {
	if len(f.Faults) == 0 && !validID(id) {
		return notFound(id)
	}
	return f.Err()
}

// text is a field of a request with its maximum length in bytes.
type text struct {
	field, value string
	most         int
}

func (f *faults) texts(op string, texts ...text) {
	for _, t := range texts {
		if len(t.value) > t.most {
			f.Add(t.field, "has %d bytes; at most %d are allowed", len(t.value), t.most)
		}
	}
	if !opPattern.MatchString(op) {
		f.Add("op", "must be at most 128 printable ASCII characters without spaces")
	}
}

// checkCall validates the fields that all calls on an item have, and texts.
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
		f.Add("title", "has %d characters; at most %d are allowed; put the rest into description", n, maxTitle)
	}
	if req.GetItemId() != "" && !validID(req.GetItemId()) {
		f.Add("itemId", "must be at most 63 letters, digits, _ and -, and must not begin with -")
	}
	if req.GetPriority() < 0 || req.GetPriority() > 5 {
		f.Add("priority", "is %d; it must be 1 to 5", req.GetPriority())
	}
	if req.GetMaxRetries() < 0 || req.GetMaxRetries() > 10 {
		f.Add("maxRetries", "is %d; it must be 1 to 10", req.GetMaxRetries())
	}
	f.needs("dependsOn", req.GetDependsOn())
	f.texts(req.GetOp(), text{"description", req.GetDescription(), maxBody})
	return f.Err()
}

func (f *faults) needs(field string, ids []string) {
	if len(ids) > maxNeeds {
		f.Add(field, "names %d items; at most %d are allowed", len(ids), maxNeeds)
		return
	}
	for i, id := range ids {
		if !validID(id) {
			f.Add(fmt.Sprintf("%s[%d]", field, i), "names %.64q, which is not an item of this board", id)
		}
	}
}

func checkUpdate(req *teamv1.UpdateWorkItemRequest) error {
	var f faults
	if req.Progress != nil && (req.GetProgress() < 0 || req.GetProgress() > 100) {
		f.Add("progress", "is %d; it must be 0 to 100", req.GetProgress())
	}
	if len(req.GetAddDependsOn()) > 0 && (req.Progress != nil || req.GetNote() != "") {
		f.Add("addDependsOn", "cannot be combined with progress or note: dependencies are added to items that are not claimed, progress is reported on claimed ones")
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
		f.Add("replyTo", "is %d; it must be the seq of a message", req.GetReplyTo())
	}
	account, name, principal := strings.Cut(req.GetTo(), "/")
	switch {
	case req.GetTo() == "" || p.in(req.GetTo()):
	case principal && account == p.Account && name != "":
		f.name("to", req.GetTo())
	default:
		f.Add("to", "is %.64q, which is not a recipient here; use one of %s, or %s/NAME for a principal, or omit it to address all",
			req.GetTo(), strings.Join(append([]string{agent.IDOf(p.Team)}, p.Members...), ", "), p.Account)
	}
	f.texts(req.GetOp(), text{"text", req.GetText(), maxBody})
	return f.Err()
}

// name validates the name of an assignee, reader or recipient.
func (f *faults) name(field, name string) {
	if len(name) > 256 || strings.ContainsRune(name, 0) {
		f.Add(field, "is not a valid name")
	}
}

func isNotFound(err error) bool { return errors.Is(err, runs.ErrNotFound) }
