//go:build failpoints

// Package failpoint lets tests stop a process at a named place in the code.
//
// The environment variable TEAM_FAILPOINTS assigns actions to places, for example
// "store.after_commit=kill@3;…". The actions are kill (SIGKILL to this process), stop
// (SIGSTOP) and sleep=DURATION. @n applies the action to the n-th hit only; without it,
// the action applies to every hit.
package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// variable is the environment variable with the actions.
const variable = "TEAM_FAILPOINTS"

var points = sync.OnceValue(func() map[string]*point {
	all, err := parse(os.Getenv(variable))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", variable, err))
	}
	return all
})

// Hit performs the action of a place, if any. The name should be a literal. Hit is safe for
// concurrent use.
func Hit(name string) {
	if p := points()[name]; p != nil && p.due() {
		p.act()
	}
}

// point is a place with an action.
type point struct {
	act  func()
	at   int64 // the hit to act on; 0 means every hit
	hits atomic.Int64
}

// due counts a hit and reports whether the action applies to it.
func (p *point) due() bool {
	n := p.hits.Add(1)
	return p.at == 0 || p.at == n
}

func parse(spec string) (map[string]*point, error) {
	all := map[string]*point{}
	for one := range strings.SplitSeq(spec, ";") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		name, do, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: expected NAME=ACTION", one)
		}
		p, err := parsePoint(do)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", one, err)
		}
		all[name] = p
	}
	return all, nil
}

func parsePoint(do string) (*point, error) {
	p := &point{}
	do, at, counted := strings.Cut(do, "@")
	if counted {
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("@%s: expected the number of a hit, from 1", at)
		}
		p.at = n
	}
	var err error
	p.act, err = action(do)
	return p, err
}

func action(do string) (func(), error) {
	switch word, arg, _ := strings.Cut(do, "="); word {
	case "kill":
		return signal(syscall.SIGKILL), nil
	case "stop":
		return signal(syscall.SIGSTOP), nil
	case "sleep":
		d, err := time.ParseDuration(arg)
		return func() { time.Sleep(d) }, err
	}
	return nil, fmt.Errorf("expected kill, stop or sleep=DURATION, not %q", do)
}

// signal returns an action that sends a signal to this process and waits until it has arrived.
func signal(s syscall.Signal) func() {
	return func() {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			panic(err)
		}
		if s == syscall.SIGKILL {
			select {}
		}
	}
}
