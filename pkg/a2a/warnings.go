package a2a

import (
	"slices"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// checked keeps what readers should know of a look at a message: a middleware
// that failed and was left out. What a guardrail stopped
// is told by what ends with it.
func (f *Fold) checked(c *teamv1.Checked) {
	if c.GetError() != nil && !c.GetBlocked() {
		f.warn(c.GetError().GetMessage())
	}
}

// maxShownWarnings bounds the warnings of a task.
const maxShownWarnings = 100

// warn adds warnings, each once.
func (f *Fold) warn(texts ...string) {
	for _, text := range texts {
		if len(f.warnings) < maxShownWarnings && !slices.Contains(f.warnings, text) {
			f.warnings = append(f.warnings, text)
		}
	}
}

// given puts in place of the message that was decided on the one that a child was
// given, where a middleware has changed it.
func (f *Fold) given(in *teamv1.Input) {
	m := in.GetMessage()
	if m == nil {
		m = f.texts[in.GetRef()]
	}
	if m != nil && len(f.history) > 0 {
		f.history[0] = f.placed(m)
	}
}
