package modes

import "testing"

// TestAssigns: a single equals sign is found outside of texts only.
func TestAssigns(t *testing.T) {
	for text, want := range map[string]bool{
		"turn = 1": true, "turn == 1": false, "a.text == 'x = y'": false, `a <= 1 && b >= 2 && c != "="`: false, "a == 1 && b = 2": true, "x=1": true, "true": false,
	} {
		if assigns.MatchString(text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}
