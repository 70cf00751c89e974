package main

import (
	"fmt"
	"os"
	"strings"
)

// group is a heading of the requirements and those below it.
type group struct {
	title        string
	requirements []requirement
}

// requirement is one rule: its ID, and the sentence that states it.
type requirement struct{ id, sentence string }

// readRequirements reads a file with a requirement a line. A line that begins with
// "## " is a heading; other lines that begin with "#", and empty ones, are comments.
func readRequirements(name string) ([]group, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var groups []group
	seen := map[string]bool{}
	for n, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		title, isTitle := strings.CutPrefix(line, "## ")
		id, sentence, _ := strings.Cut(line, " ")
		switch {
		case isTitle:
			groups = append(groups, group{title: title})
		case line == "" || strings.HasPrefix(line, "#"):
		case sentence == "" || len(groups) == 0:
			return nil, fmt.Errorf("%s:%d: want an ID and a sentence, below a heading", name, n+1)
		case seen[id]:
			return nil, fmt.Errorf("%s:%d: %s is there twice", name, n+1, id)
		default:
			seen[id] = true
			last := &groups[len(groups)-1]
			last.requirements = append(last.requirements, requirement{id, strings.TrimSpace(sentence)})
		}
	}
	return groups, nil
}

// idsOf lists the IDs of all requirements, in the order of the file.
func idsOf(groups []group) []string {
	var ids []string
	for _, g := range groups {
		for _, r := range g.requirements {
			ids = append(ids, r.id)
		}
	}
	return ids
}
