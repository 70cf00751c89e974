// Package prices has the prices of public models, as they were when the program was built.
package prices

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
)

// prices.json is written by tools/prices/generate.py.
//
//go:embed prices.json
var shipped []byte

// List is a list of prices, with where they are from.
type List struct {
	// Source is the address of the data, Version its version, and Date the day on which it was taken, as 2006-01-02.
	Source  string `json:"source"`
	Version string `json:"version"`
	Date    string `json:"date"`
	// Models are sorted by provider.
	Models []Model `json:"models"`
}

// Model is a model of a provider with its price in USD per million tokens.
type Model struct {
	// Provider is the word for the provider in configuration files.
	Provider string `json:"provider"`
	// Names are those by which the provider knows the model, in lower case. A date, such as -20251001 or -2025-10-01, may
	// follow those that end with *.
	Names       []string `json:"names"`
	Input       float64  `json:"input"`
	CachedInput *float64 `json:"cached_input,omitempty"`
	CacheWrite  *float64 `json:"cache_write,omitempty"`
	Output      float64  `json:"output"`
}

// String names the list and its version.
func (l *List) String() string {
	return fmt.Sprintf("%s %s of %s", l.Source[strings.LastIndex(l.Source, "/")+1:], l.Version, l.Date)
}

// Shipped returns the list of the program. It must not be modified.
var Shipped = sync.OnceValue(func() *List {
	l := &List{}
	if err := json.Unmarshal(shipped, l); err != nil {
		panic("prices.json: " + err.Error()) // it is part of the program, and TestShipped reads it
	}
	return l
})

// byName has the models of the list by provider and name.
var byName = sync.OnceValue(func() map[[2]string]*Model {
	all := map[[2]string]*Model{}
	models := Shipped().Models
	for i := range models {
		for _, name := range models[i].Names {
			all[[2]string{models[i].Provider, name}] = &models[i]
		}
	}
	return all
})

// dated matches the names of snapshots of a model.
var dated = regexp.MustCompile(`^(.+)-(\d{8}|\d{4}-\d{2}-\d{2})$`)

// Of returns the price of a model of a provider, or nil if it is not known.
func Of(provider, name string) *teamv1.Price {
	name = strings.ToLower(name)
	m := byName()[[2]string{provider, name}]
	if m == nil {
		m = byName()[[2]string{provider, name + "*"}]
	}
	if m == nil && dated.MatchString(name) {
		m = byName()[[2]string{provider, dated.FindStringSubmatch(name)[1] + "*"}]
	}
	if m == nil {
		return nil
	}
	return &teamv1.Price{Input: m.Input, Output: m.Output, CachedInput: m.CachedInput, CacheWrite: m.CacheWrite}
}
