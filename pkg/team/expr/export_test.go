package expr

// Pieces counts what the template is made of.
func (t *Template) Pieces() int { return len(t.pieces) }
