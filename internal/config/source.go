package config

import (
	"fmt"
	"maps"
	"path/filepath"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Source is a YAML file that was read into a message, with the places of its
// values: for files beside the configuration that are checked as it is. Used by
// one goroutine.
type Source struct {
	d    *document
	data []byte
	read func(string) ([]byte, error)
}

// Read reads a file into a message of proto/team/v1 and checks it against the
// message's rules. Faults has what is wrong with it; the error is of a message
// whose rules make no sense, or Faults of a file that cannot be read at all.
func (l Loader) Read(path string, m proto.Message) (*Source, error) {
	data, err := l.readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	s := &Source{d: parse(path, data), data: data, read: l.readFile}
	if s.d.root == nil {
		return nil, tidy(s.d.faults)
	}
	s.d.shape(s.d.root, m.ProtoReflect().Descriptor())
	if err := s.d.decodeInto(m); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	return s, nil
}

// File is the path as it was given.
func (s *Source) File() string { return s.d.file }

// Data is the content.
func (s *Source) Data() []byte { return s.data }

// Path is where a file is that this one names.
func (s *Source) Path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.d.file), name)
}

// ReadFile reads a file that this one names, relative to it.
func (s *Source) ReadFile(name string) ([]byte, error) { return s.read(s.Path(name)) }

// Has reports whether there is a value below path, of keys and indexes.
func (s *Source) Has(path ...any) bool {
	_, found := s.d.at(path...)
	return found
}

// Node returns the value below path, or the deepest one above it.
func (s *Source) Node(path ...any) *yaml.Node {
	n, _ := s.d.at(path...)
	return n
}

// Line is the line of the key or entry that path ends with, or of what is above it.
func (s *Source) Line(path ...any) int {
	if len(path) == 0 {
		return s.d.root.Line
	}
	return s.d.keyAt(path...).Line
}

// Fault reports what is wrong with the value below path, unless a fault of its
// own is known there.
func (s *Source) Fault(message, hint string, path ...any) {
	if n, _ := s.d.at(path...); !s.d.damaged[n] {
		s.d.fault(n, message, hint)
	}
}

// KeyFault reports what is wrong with the last key of path.
func (s *Source) KeyFault(message, hint string, path ...any) {
	s.d.fault(s.d.keyAt(path...), message, hint)
}

// FaultAt reports what is wrong at a place, counted from 1.
func (s *Source) FaultAt(line, col int, message, hint string) { s.d.faultAt(line, col, message, hint) }

// Faults are what is wrong with the file, sorted; nil is nothing.
func (s *Source) Faults() Faults {
	if len(s.d.faults) == 0 {
		return nil
	}
	return tidy(s.d.faults)
}

// Declare makes names of another configuration known to this file, which tests it:
// its faults show them.
func (s *Source) Declare(c *Config) { maps.Copy(s.d.names, c.document.names) }

// Suggest words a hint for a name that is not among the known ones.
func Suggest(name string, known []string) string { return suggest(name, known) }

// Unreadable is the fault of a file that cannot be read.
func Unreadable(path string, err error) Fault { return unreadable(path, err)[0] }

// Line is the line of the key or entry that path ends with, in a configuration
// that was read from a file; 0 is not known.
func (c *Config) Line(path ...any) int {
	if c.document == nil || len(path) == 0 {
		return 0
	}
	if _, found := c.document.at(path...); !found {
		return 0
	}
	return c.document.keyAt(path...).Line
}

// Exists reports whether there is a file.
func (l Loader) Exists(path string) bool {
	_, err := l.stat(path)
	return err == nil
}

// Tidy sorts the faults of several files and drops those that are there twice.
func Tidy(fs Faults) Faults { return tidy(fs) }
