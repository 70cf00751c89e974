package main

import (
	"fmt"
	"strings"
)

const preface = `# Requirements

What team-server must do: the ID of each requirement, a sentence that states it, and the tests that carry the ID in
their name or in the name of a subtest. An ID that no test carries yet is marked **open**.

This file is generated: ` + "`make trace-docs`" + ` writes it from ` + "`tests/requirements.txt`" + ` and the sources of the tests.
` + "`make trace`" + ` runs the tests and shows how they end. Folders are relative to the root of the repository.
`

// document is the Markdown text of the requirements, with the tests found below root.
func document(root, file string) (string, error) {
	groups, err := readRequirements(file)
	if err != nil {
		return "", err
	}
	ids := idsOf(groups)
	tests, err := sourceTests(root, finder(ids))
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(preface)
	fmt.Fprintf(&text, "\n%d requirements, %d of them with tests.\n", len(ids), len(tests))
	for _, g := range groups {
		fmt.Fprintf(&text, "\n## %s\n\n", g.title)
		for _, r := range g.requirements {
			fmt.Fprintf(&text, "- **%s** %s  \n  %s\n", r.id, r.sentence, places(tests[r.id]))
		}
	}
	return text.String(), nil
}

// places lists tests by package: `package: TestA, TestB; other: TestC`.
func places(tests []test) string {
	if len(tests) == 0 {
		return "**open**"
	}
	var text strings.Builder
	for i, t := range tests {
		switch {
		case i > 0 && tests[i-1].pkg == t.pkg:
			fmt.Fprintf(&text, ", %s", t.name)
		case i > 0:
			fmt.Fprintf(&text, "; `%s`: %s", t.pkg, t.name)
		default:
			fmt.Fprintf(&text, "`%s`: %s", t.pkg, t.name)
		}
	}
	return text.String()
}
