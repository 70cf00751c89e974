package build

import (
	"fmt"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/config/modes"
	"github.com/agentteams/team-server/pkg/team"
	"github.com/agentteams/team-server/pkg/team/expr"
)

// review builds the review of a team's results, or returns nil if they are not reviewed.
func (b *builder) review(r *teamv1.ReviewConfig) (*team.Review, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // no review
	}
	review := modes.Review(r)
	var err error
	if model := r.GetJudge().GetModel(); model != "" {
		if review.Model, err = b.model(model); err != nil {
			return nil, err
		}
	}
	if check := r.GetJudge().GetCheck(); check != "" {
		if review.Check, err = expr.CompileCheck(check); err != nil {
			return nil, fmt.Errorf("review.judge.check: %w", err)
		}
	}
	if file := r.GetJudge().GetSchema(); file != "" {
		s := b.Definition.Schemas[file]
		if s == nil {
			return nil, fmt.Errorf("schema %s of a judge is not loaded", file)
		}
		review.Format = s.Fit
	}
	return review, nil
}
