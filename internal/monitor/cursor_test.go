package monitor

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

var comparable = cmp.AllowUnexported(cursor{})

func TestR_003_30_CursorIsReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := rapid.OneOf(rapid.StringN(1, 40, -1), rapid.Custom(func(t *rapid.T) string {
			return uuid.NewSHA1(uuid.Nil, []byte(rapid.String().Draw(t, "seed"))).String()
		}))
		c := cursor{
			upTo:  time.UnixMilli(rapid.Int64Range(-1<<40, 1<<45).Draw(t, "up to")),
			roots: rapid.MapOfN(root, rapid.Int64Range(0, 1<<40), 0, 20).Draw(t, "roots"),
			board: rapid.Int64Range(0, 1<<40).Draw(t, "board"),
		}
		text := c.encode("acme/ann", "news")
		again, ok := decode(text, "acme/ann", "news")
		if diff := cmp.Diff(c, again, comparable); diff != "" || !ok {
			t.Fatalf("%q is %v:\n%s", text, ok, diff)
		}
		for _, other := range [][2]string{{"acme/bob", "news"}, {"acme/ann", "newsroom"}} {
			if _, ok := decode(text, other[0], other[1]); ok {
				t.Fatalf("a cursor of ann's for news is one of %v", other)
			}
		}
	})
}

func TestR_003_30_CursorOfMuchIsLost(t *testing.T) {
	c := cursor{upTo: time.UnixMilli(1), roots: map[string]int64{}}
	for i := range maxListed {
		c.roots[uuid.NewSHA1(uuid.Nil, fmt.Append(nil, i)).String()] = 50_000
	}
	text := c.encode("o", "t")
	if again, ok := decode(text, "o", "t"); !ok || len(again.roots) != maxListed || len(text) > 8<<10 {
		t.Errorf("%d roots in %d bytes, %v", len(again.roots), len(text), ok)
	}
	c.roots["one more"] = 1
	if text := c.encode("o", "t"); text != lost {
		t.Errorf("a cursor of %d roots is %q", len(c.roots), text)
	}
	if _, ok := decode(lost, "o", "t"); ok {
		t.Error("behind what is lost a stream goes on")
	}
}

func FuzzP17_Cursor(f *testing.F) {
	for _, c := range []cursor{{upTo: time.UnixMilli(1)}, {upTo: time.UnixMilli(1 << 40), roots: map[string]int64{uuid.Nil.String(): 7, "r": 1}, board: 300}} {
		f.Add(c.encode("o", "t"))
	}
	f.Add(lost)
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := decode(text, "o", "t")
		if !ok {
			return
		}
		again, ok := decode(c.encode("o", "t"), "o", "t")
		if diff := cmp.Diff(c, again, comparable); diff != "" || !ok {
			t.Fatalf("%q:\n%s", text, diff)
		}
	})
}
