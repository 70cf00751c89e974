// Package models implements the commands over the models of a configuration file, and over the prices that the program ships
// with.
package models

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	teamv1 "github.com/agentteams/team-server/gen/team/v1"
	"github.com/agentteams/team-server/internal/cli/console"
	"github.com/agentteams/team-server/internal/config"
	"github.com/agentteams/team-server/internal/prices"
)

// Commands are the commands over models. They print to the console.
type Commands struct {
	Console *console.Console
	// Definition is the file; Prices does not need it.
	Definition *config.Config
}

// Names returns the names of the models of the file, sorted.
func (c *Commands) Names() []string {
	return slices.Sorted(maps.Keys(c.Definition.Server.GetModels()))
}

// priced is a model of the list of prices, as -o json prints it.
type priced struct {
	prices.Model
	Source  string `json:"source"`
	Version string `json:"version"`
	Date    string `json:"date"`
}

// Prices prints the prices that the program ships with. pattern selects those in whose PROVIDER/NAME it is a part; * stands
// for any text.
func (c *Commands) Prices(pattern string) error {
	wanted := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(strings.ToLower(pattern)), `\*`, ".*"))
	all := prices.Shipped()
	var list []priced
	for _, m := range all.Models {
		m.Names = slices.DeleteFunc(slices.Clone(m.Names), func(name string) bool { return !wanted.MatchString(m.Provider + "/" + name) })
		if len(m.Names) > 0 {
			list = append(list, priced{m, all.Source, all.Version, all.Date})
		}
	}
	if c.Console.JSON {
		return console.Lines(c.Console, list)
	}
	c.Console.Sayf("USD per million tokens, from %s, version %s, taken on %s; price in the file replaces them", all.Source, all.Version, all.Date)
	if len(list) == 0 {
		return fmt.Errorf("there is no price of a model like %q; add price: {input: X, output: Y} to the model in the file", console.Line(pattern))
	}
	return console.Columns(c.Console, list, "PROVIDER\tMODEL\tINPUT\tCACHED\tCACHE WRITE\tOUTPUT", func(m priced) []string {
		return []string{m.Provider, m.Names[0], usd(&m.Input), usd(m.CachedInput), usd(m.CacheWrite), usd(&m.Output)}
	})
}

// listed is a model of the file, as -o json prints it.
type listed struct {
	ID       string        `json:"id"`
	Provider string        `json:"provider"`
	Name     string        `json:"name,omitempty"`
	Address  string        `json:"address,omitempty"`
	Fallback []string      `json:"fallback,omitempty"`
	Price    *teamv1.Price `json:"price,omitempty"`
	// PriceFrom is where the price is from; empty if it is not known.
	PriceFrom string `json:"price_from,omitempty"`
	// Lacks is what the model needs and does not have.
	Lacks string `json:"lacks,omitempty"`
}

// List prints the models of the file.
func (c *Commands) List() error {
	var list []listed
	all := c.Definition.Server.GetModels()
	for _, id := range c.Names() {
		m := all[id]
		list = append(list, listed{id, m.GetProvider(), m.GetName(), m.GetBaseUrl(), m.GetFallback(), m.GetPrice(), c.priceFrom(id), config.Lacks(c.Definition, id)})
	}
	if c.Console.JSON {
		return console.Lines(c.Console, list)
	}
	return console.Columns(c.Console, list, "MODEL\tPROVIDER\tNAME\tADDRESS\tINPUT\tOUTPUT\tPRICE", func(m listed) []string {
		in, out := "-", "-"
		if m.Price != nil {
			in, out = usd(&m.Price.Input), usd(&m.Price.Output)
		}
		row := []string{m.ID, m.Provider, m.Name, m.Address, in, out, m.PriceFrom}
		for i, text := range row {
			if row[i] = console.Line(text); text == "" {
				row[i] = "-"
			}
		}
		return row
	})
}

// priceFrom says where the price of a model is from; "" if it has none.
func (c *Commands) priceFrom(id string) string {
	switch m := c.Definition.Server.GetModels()[id]; {
	case m.GetPrice() == nil:
		return ""
	case c.Definition.Shipped[id]:
		return prices.Shipped().String()
	case c.Definition.Line("models", id, "price") == 0:
		return "a local server"
	}
	return "the file"
}

// usd returns an amount in USD; "-" if p is nil.
func usd(p *float64) string {
	if p == nil {
		return "-"
	}
	return strconv.FormatFloat(*p, 'f', -1, 64)
}
