package ring

import "testing"

// item is an entry with a sequence number and a size.
type item struct {
	seq  int64
	size int
}

func (i item) Seq() int64 { return i.seq }
func (i item) Bytes() int { return i.size }

func TestP10_ShareOfARing(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int{0: maxBytes, 1: maxBytes, 64: maxBytes, 128: maxBytes / 2} {
		var g Group
		if g.rings.Store(n); g.Share() != want {
			t.Errorf("of %d rings each keeps %d bytes, want %d", n, g.Share(), want)
		}
	}
}

func TestP10_WhatARingKeeps(t *testing.T) {
	t.Parallel()
	const third = maxBytes / 3
	t.Run("the newest that fit, and the last one in any case", func(t *testing.T) {
		var g Group
		r := New[item](&g, 10)
		for i := range int64(4) {
			r.Add(item{i + 1, third}, i)
		}
		if r.Len() != 3 || r.Base != 1 || r.Bytes() != 3*third || g.Bytes() != 3*third {
			t.Error(r.Len(), r.Base, r.Bytes(), g.Bytes())
		}
		if r.Add(item{5, 9 * third}, 4); r.Len() != 1 || r.Base != 4 || r.Bytes() != 9*third {
			t.Error(r.Len(), r.Base, r.Bytes())
		}
		r.Drop()
		r.Drop()
		if g.Bytes() != 0 || g.rings.Load() != 0 {
			t.Errorf("%d bytes are left of %d rings", g.Bytes(), g.rings.Load())
		}
	})
	t.Run("and what nobody has seen", func(t *testing.T) {
		r := New[item](&Group{}, 10)
		for i := range int64(4) {
			r.Add(item{i + 1, 2 * third}, 2)
		}
		if r.Len() != 2 || r.Base != 2 || r.Bytes() != 4*third {
			t.Error(r.Len(), r.Base, r.Bytes())
		}
	})
	t.Run("so many of them", func(t *testing.T) {
		r := New[item](&Group{}, 3)
		for i := range int64(4) {
			r.Add(item{i + 1, 1}, i)
		}
		if r.Len() != 3 || r.Base != 1 {
			t.Error(r.Len(), r.Base)
		}
	})
	t.Run("what comes after a cursor", func(t *testing.T) {
		r := New[item](&Group{}, 3)
		for i := range int64(3) {
			r.Add(item{2*i + 2, 1}, i) // 2, 4, 6
		}
		for after, want := range map[int64]int{0: 3, 2: 2, 3: 2, 6: 0, 9: 0} {
			if got := r.After(after); len(got) != want {
				t.Errorf("after %d there are %v, want %d", after, got, want)
			}
		}
	})
}
