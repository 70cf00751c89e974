package config

import (
	"fmt"
	"path/filepath"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Source is a YAML file that was decoded into a message, with the positions of its values. It is
// used for files other than the configuration, such as test files. It is not safe for concurrent
// use.
type Source struct {
	d    *document
	data []byte
	read func(string) ([]byte, error)
}

// Read decodes a file into a message of proto/team/v1 and checks it against the message's
// validation rules. Faults in the content are available from Source.Faults. Read returns an error
// of type Faults if the file cannot be read or parsed, and another error if a validation rule
// itself is invalid.
func (l Loader) Read(path string, m proto.Message) (*Source, error) {
	data, err := l.readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	s := &Source{d: parse(path, data), data: data, read: l.readFile}
	if s.d.root == nil {
		return nil, s.d.result()
	}
	s.d.shape(s.d.root, m.ProtoReflect().Descriptor())
	if err := s.d.decodeInto(m); err != nil {
		return nil, fmt.Errorf("checking %s: %w", path, err)
	}
	return s, nil
}

// File returns the path as it was given to Read.
func (s *Source) File() string { return s.d.file }

// Data returns the content of the file. The caller must not modify it.
func (s *Source) Data() []byte { return s.data }

// Path returns the path of a file that this one refers to.
func (s *Source) Path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.d.file), name)
}

// ReadFile reads a file that this one refers to. A relative name is relative to this file.
func (s *Source) ReadFile(name string) ([]byte, error) { return s.read(s.Path(name)) }

// Has reports whether there is a value at path, which consists of keys and indexes.
func (s *Source) Has(path ...any) bool {
	_, found := s.d.at(path...)
	return found
}

// Node returns the value at path, or the deepest existing value above it.
func (s *Source) Node(path ...any) *yaml.Node {
	n, _ := s.d.at(path...)
	return n
}

// Line returns the line of the key or list entry at path, or of the deepest one above it.
func (s *Source) Line(path ...any) int {
	if len(path) == 0 {
		return s.d.root.Line
	}
	return s.d.keyAt(path...).Line
}

// Fault adds a fault at the value at path, unless that value already has a fault.
func (s *Source) Fault(message, hint string, path ...any) {
	if n, _ := s.d.at(path...); !s.d.damaged[n] {
		s.d.fault(n, message, hint)
	}
}

// KeyFault adds a fault at the last key of path.
func (s *Source) KeyFault(message, hint string, path ...any) {
	s.d.fault(s.d.keyAt(path...), message, hint)
}

// FaultAt adds a fault at a line and column, both counted from 1.
func (s *Source) FaultAt(line, col int, message, hint string) { s.d.faultAt(line, col, message, hint) }

// Faults returns the faults of the file, sorted; nil if the file has no fault.
func (s *Source) Faults() Faults {
	if len(s.d.faults) == 0 {
		return nil
	}
	return s.d.result()
}

// Suggest returns a hint for a name that is not among the known ones.
func Suggest(name string, known []string) string { return suggest(name, known) }

// Unreadable returns the fault for a file that cannot be read.
func Unreadable(path string, err error) Fault { return unreadable(path, err)[0] }

// Line returns the line of the key or list entry at path in the configuration file. It returns 0 if
// the file has no such entry, or if c was restored from a definition.
func (c *Config) Line(path ...any) int {
	if c.document == nil || len(path) == 0 {
		return 0
	}
	if _, found := c.document.at(path...); !found {
		return 0
	}
	return c.document.keyAt(path...).Line
}

// Exists reports whether the path can be accessed.
func (l Loader) Exists(path string) bool {
	_, err := l.stat(path)
	return err == nil
}

// Tidy sorts the faults of several files and removes duplicates.
func Tidy(fs Faults) Faults { return tidy(fs) }
