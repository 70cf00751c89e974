package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// document is a file of ACTS.
type document struct {
	Include []string
	Suites  []struct{ Tests []test }
}

type test struct {
	ID, Level     string
	Transport     []string
	Preconditions struct{ Capabilities map[string]any }
	Steps         []step
	Assertions    []map[string]any
}

type step struct {
	ID, Operation  string
	Params         map[string]any
	Raw            *raw
	ClientResponse *struct {
		Operation   string
		WirePayload any `yaml:"wire_payload"`
	} `yaml:"client_response"`
	Expect       map[string]any
	ExpectError  map[string]any `yaml:"expect_error"`
	ExpectStream map[string]any `yaml:"expect_stream"`
	ExpectParsed map[string]any `yaml:"expect_parsed"`
	Capture      map[string]string
	Assertions   []map[string]any
	Repeat       *struct {
		Until       string
		MaxAttempts int `yaml:"max_attempts"`
		DelayMS     int `yaml:"delay_ms"`
	}
	DelayMS int `yaml:"delay_ms"`
}

type raw struct {
	Method, Path string
	Headers      map[string]string
	Body         any
	BodyRaw      *string `yaml:"body_raw"`
}

// load reads the tests of a corpus, whose main file is suite.acts.yaml.
func load(dir string) ([]test, error) {
	var main document
	if err := read(filepath.Join(dir, "suite.acts.yaml"), &main); err != nil {
		return nil, err
	}
	var tests []test
	for _, name := range main.Include {
		var d document
		if err := read(filepath.Join(dir, name), &d); err != nil {
			return nil, err
		}
		for _, s := range d.Suites {
			tests = append(tests, s.Tests...)
		}
	}
	return tests, nil
}

func read(file string, d *document) error {
	b, err := os.ReadFile(file)
	if err == nil {
		err = yaml.NewDecoder(bytes.NewReader(b)).Decode(d)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

var variable = regexp.MustCompile(`{{([^}]*)}}`)

// resolve returns a value with its variables replaced. An unknown variable stays.
func resolve(v any, variables map[string]any) any {
	switch v := v.(type) {
	case string:
		if m := variable.FindStringSubmatch(v); m != nil && m[0] == v {
			if value, ok := variables[m[1]]; ok {
				return value
			}
		}
		return variable.ReplaceAllStringFunc(v, func(of string) string {
			name := of[2 : len(of)-2]
			if name == "$uuid" {
				return rand.Text()
			}
			if value, ok := variables[name]; ok {
				return fmt.Sprint(value)
			}
			return of
		})
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = resolve(v[i], variables)
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for k, item := range v {
			object[k] = resolve(item, variables)
		}
		return object
	}
	return v
}
