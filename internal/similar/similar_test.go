package similar

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"writer", "critic", "x", "Größe"}
	for _, tt := range []struct {
		name string
		most int
		want string
	}{
		{"writre", 1, "writer"}, {"WRITER", 1, "writer"}, {"wrter", 2, "writer"}, {"crtc", 2, "critic"}, {"crtc", 1, ""},
		{"größ", 2, "Größe"}, {"y", 2, ""}, {"nobody", 2, ""}, {"", 2, ""}, {strings.Repeat("w", 129), 200, ""},
	} {
		if got := Nearest(tt.name, known, tt.most); got != tt.want {
			t.Errorf("Nearest(%q, %d) = %q, want %q", tt.name, tt.most, got, tt.want)
		}
	}
}
