package modes

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/agentteams/team-server/internal/config/source"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// scheduler reports the errors a scheduler returned for its rules or steps, which are at a key of the team. If
// complete is false, the names an expression can use are not all known, so unknown names are not
// reported.
func (c *check) scheduler(err error, complete bool, key string) {
	for _, err := range joined(err) {
		var f *team.Fault
		if !errors.As(err, &f) {
			c.at.At(key).Fault(err.Error(), "")
			continue
		}
		at := c.at.At(key)
		if strings.HasPrefix(f.Path, "members[") { // members are a key of the team, not of the mode
			at = c.at
		}
		expression(at.Field(f.Path), f.Subject, f.Err, complete)
	}
}

// joined returns the errors that errors.Join combined, or err alone.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	if _, single := err.(*team.Fault); single { //nolint:errorlint // this very error
		return []error{err}
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// expression reports an error of an expression at its position within the text at a place.
func expression(at source.Place, subject string, err error, complete bool) {
	if at.Damaged() || at.Faulty() {
		return
	}
	var e *expr.Error
	if !errors.As(err, &e) {
		if at.EntryFaulty() {
			return
		}
		message, hint := source.CutHint(err.Error())
		at.Fault(subject+": "+message, cmp.Or(hint, "correct or remove it; examples/ has files that work"))
		return
	}
	switch {
	case e.Unknown == "":
		message, hint := source.CutHint(withoutParserDetail(e.Message))
		switch source := at.Node().Value; {
		case strings.ContainsAny(source, "“”‘’"):
			message, hint = "“ and ” are not quotes here", "write ' around texts"
		case assigns.MatchString(source):
			message, hint = "= is not an operator", "write == for equal"
		case wordOperator.MatchString(source):
			word := wordOperator.FindStringSubmatch(source)[1]
			message, hint = strings.ToLower(word)+" is not an operator", "write "+operators[strings.ToLower(word)]
		}
		at.FaultInText(e.Offset, subject+": "+message, cmp.Or(hint, "check names, types, brackets and quotes; equal is =="))
	case complete && !consequence(at, e):
		at.FaultInText(e.Offset, subject+": "+e.Message, at.Document().Search(func() string { return source.SuggestAll(e.Unknown, e.Known) }))
	}
}

// consequence reports whether a name is unknown only because what declares it has a fault.
func consequence(at source.Place, e *expr.Error) bool {
	of := at.Above(2) // the agent or team
	switch {
	case slices.Contains(e.Known, e.Unknown): // declared, but it cannot be a name
		return true
	case strings.HasPrefix(e.Unknown, "inputs."):
		return of.At("inputs").Damaged()
	case !strings.HasPrefix(e.Unknown, "outputs."):
		return false
	}
	for _, list := range []source.Place{of.At("members"), of.At("workflow", "steps")} {
		for i := range list.Node().Content {
			if list.At(i).Damaged() {
				return true
			}
		}
	}
	return false
}

// assigns matches an expression with a single equals sign outside of texts.
var assigns = regexp.MustCompile(`^(?:[^'"=<>!]|'[^']*'|"[^"]*"|[=<>!]=|[<>!][^='"])*=(?:[^=]|$)`)

// wordOperator matches an operator as other languages write it, outside of texts.
var wordOperator = regexp.MustCompile(`^(?:[^'"]|'[^']*'|"[^"]*")*?(?:^|[\s)])((?i:and|or|not)|===|<>)[\s('"]`)

// operators are what to write for an operator of other languages.
var operators = map[string]string{"and": "&& for and", "or": "|| for or", "not": "! for not", "===": "== for equal", "<>": "!= for not equal"}

// withoutParserDetail removes the parser's prefix, and the text that it quotes, from a syntax
// error.
func withoutParserDetail(message string) string {
	message, syntax := strings.CutPrefix(message, "Syntax error: ")
	switch {
	case !syntax:
		return message
	case strings.HasPrefix(message, "mismatched input '<EOF>'"):
		return "it ends where a value was expected"
	}
	message, _, _ = strings.Cut(message, " '")
	if strings.HasSuffix(message, " input") { // mismatched, extraneous
		message = "this is not expected here"
	}
	return strings.TrimSuffix(message, ":")
}
