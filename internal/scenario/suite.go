package scenario

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"go.uber.org/zap"

	"github.com/agentteams/team-server/internal/config/source"
)

// maxConcurrent is the maximum number of scenarios that run concurrently. It does not depend on the
// number of CPUs, because scenarios wait more than they compute.
const maxConcurrent = 8

// LoadAll reads test files. The error is source.Faults and holds the faults of all files.
func LoadAll(l Loader, paths []string) ([]*File, error) { return loadAll(l, paths, false) }

// LoadReal reads test files for PlayReal: their scenarios call the models of the configurations instead of scripts. The
// error is that of LoadAll.
func LoadReal(l Loader, paths []string) ([]*File, error) { return loadAll(l, paths, true) }

// loadAll reads test files whose models are real or not.
func loadAll(l Loader, paths []string, realModels bool) ([]*File, error) {
	var files []*File
	var faults source.Faults
	for _, path := range paths {
		f, err := load(l, path, realModels)
		var own source.Faults
		switch {
		case errors.As(err, &own):
			faults = append(faults, own...)
		case err != nil:
			return nil, err
		}
		files = append(files, f)
	}
	if len(faults) > 0 {
		return nil, source.Tidy(faults)
	}
	return files, nil
}

// Select returns the scenarios for which match matches the team and the name, separated by a space.
// nil matches all.
func Select(files []*File, match *regexp.Regexp) []*Scenario {
	var all []*Scenario
	for _, f := range files {
		for _, s := range f.Scenarios {
			if match == nil || match.MatchString(s.Team+" "+s.Name) {
				all = append(all, s)
			}
		}
	}
	return all
}

// Play runs scenarios concurrently and calls report with each result, in the order of all. It
// stops when report returns an error or a scenario cannot be set up.
func Play(ctx context.Context, all []*Scenario, log *zap.Logger, report func(*Result) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		result *Result
		err    error
	}
	outcomes := make([]chan outcome, len(all))
	for i := range all {
		outcomes[i] = make(chan outcome, 1)
	}
	var playing sync.WaitGroup
	defer playing.Wait()
	defer cancel()
	slots := make(chan struct{}, maxConcurrent)
	playing.Go(func() {
		for i, s := range all {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				outcomes[i] <- outcome{err: context.Cause(ctx)}
				continue
			}
			playing.Go(func() {
				defer func() { <-slots }()
				r, err := s.Play(ctx, log)
				outcomes[i] <- outcome{r, err}
			})
		}
	})
	for i := range all {
		o := <-outcomes[i]
		if o.err != nil {
			return o.err
		}
		if err := report(o.result); err != nil {
			return err
		}
	}
	return nil
}
