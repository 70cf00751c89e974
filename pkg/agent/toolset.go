package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// ToolSet is tools whose list is not known beforehand, such as those of another
// process. Safe for concurrent use.
type ToolSet interface {
	// Name is the set's, for errors.
	Name() string
	// Tools returns what is on offer now. A run asks once and keeps to it; what it
	// calls later is looked up by its name.
	Tools(ctx context.Context) ([]Tool, error)
}

// maxToolName is how many characters the name of a tool has at most.
const maxToolName = 64

// ToolName makes a name one that models take: letters, digits, "_" and "-", at
// most 64 (R-004-08). Other characters become "_"; a longer name is cut, with a
// hash of the whole behind it. A name that is one already stays as it is.
func ToolName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if !toolChar(c) {
			b[i] = '_'
		}
	}
	if len(b) > maxToolName {
		sum := sha256.Sum256([]byte(name))
		b = append(b[:maxToolName-9], "_"+hex.EncodeToString(sum[:4])...)
	}
	return string(b)
}

func toolChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
