package step

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/pkg/agent"
	"github.com/agentteams/team-server/pkg/team/prompt"
)

// Bounds of the events of streamed text. The first piece is emitted at once, later text when it
// reaches this size or age.
const (
	DeltaBytes = 4 << 10
	DeltaAge   = 100 * time.Millisecond
)

// generate makes one turn of the model.
func (w *Work) generate(ctx context.Context) (res Result) {
	defer w.recovered(w.by.ID, &res)
	req := *w.Prompt
	req.Key, req.Lost, req.From = w.key(), w.Lost, w.From
	if most := cmp.Or(w.cost.maxOutput, w.MaxOutput); most > 0 {
		req.MaxOutput = most
	}
	d := deltas{w: w, artifact: w.by.Run.ID(w.by.Scope, "artifact", 1)}
	defer func() {
		if res.Err != nil && d.all.Len() > 0 && w.Step.GetKind() == teamv1.Step_KIND_MODEL && req.Force == "" && len(w.by.Guards.Output) == 0 {
			w.partial = d.all.String()
		}
	}()
	for chunk, err := range w.Target.Model.Generate(ctx, &req) {
		switch {
		case err != nil:
			return Result{Err: sized(err, &req)}
		case chunk.Turn != nil:
			if d.all.Len() == 0 {
				d.all.WriteString(chunk.Turn.GetText())
			}
			if err := d.flush(); err != nil {
				return Result{Err: ErrStopped}
			}
			if chunk.Spent != nil {
				chunk.Spent.ModelCalls = 1
			}
			if err := w.incomplete(&chunk); err != nil {
				return Result{Err: err}
			}
			res.Reply = &teamv1.Reply{Result: &teamv1.Reply_Turn{Turn: chunk.Turn}, Spent: chunk.Spent}
		case d.add(chunk.Text) != nil:
			return Result{Err: ErrStopped}
		}
		if d.all.Len() > agent.LargeBytes {
			if err := agent.LargeAnswer(ctx); err != nil {
				return Result{Err: err}
			}
		}
	}
	switch {
	case res.Reply != nil:
		return res
	case ctx.Err() != nil:
		return Result{Err: context.Cause(ctx)}
	}
	return Result{Err: agent.Errorf(agent.CodeInternal, agent.ReasonUnavailable, "the model of %q ended without an answer; try again, or give it another model", w.by.ID)}
}

// sized adds the size of a request that was too long for the model to its error, so that the next one can be
// shorter.
func sized(err error, req *agent.ModelRequest) error {
	var e *agent.Error
	if errors.As(err, &e) && e.Reason == agent.ReasonContextTooLong {
		return e.With(agent.DetailRequestBytes, strconv.Itoa(prompt.Size(req)))
	}
	return err
}

// deltas collects streamed text into events.
type deltas struct {
	w        *Work
	artifact string
	all      strings.Builder // the text of the turn so far
	text     strings.Builder // what has not been emitted yet
	last     time.Time       // time of the last event; zero before the first
}

func (d *deltas) add(text string) error {
	d.all.WriteString(text)
	if d.w.by.Silent || d.w.Prompt.Force != "" { // text beside a call that is asked for is no answer
		return nil
	}
	d.text.WriteString(text)
	if d.last.IsZero() || d.text.Len() >= DeltaBytes || d.w.by.Run.Now().Sub(d.last) >= DeltaAge {
		return d.flush()
	}
	return nil
}

func (d *deltas) flush() error {
	if d.text.Len() == 0 {
		return nil
	}
	delta := &teamv1.Delta{ArtifactId: d.artifact, Text: d.text.String(), Restart: d.last.IsZero()}
	d.text.Reset()
	d.last = d.w.by.Run.Now()
	return d.w.emit(d.w.event(&teamv1.Event{Kind: &teamv1.Event_Delta{Delta: delta}}))
}
