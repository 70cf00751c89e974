package auth

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// TestA_21_GuessesArePaced: the pause grows with each unknown key up to a limit, and ends.
func TestA_21_GuessesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guesses{log: zap.NewNop()}
		addr := netip.MustParseAddr("2001:db8::1")
		looked := func() (n int) {
			for g.admit(addr, "") == nil {
				n++
			}
			return n
		}
		if n := looked(); n < 20 || n > 30 {
			t.Errorf("%d keys at once", n)
		}
		if g.admit(netip.MustParseAddr("2001:db8::2"), "") == nil {
			t.Error("another address of the same network is looked at")
		}
		if g.admit(netip.MustParseAddr("2001:db8:0:1::1"), "") != nil {
			t.Error("another network is not looked at")
		}
		if g.admit(addr, "acme/ann") == nil {
			t.Error("a right key that is new here is looked at before its turn")
		}
		time.Sleep(maxPause)
		if err := g.admit(addr, "acme/ann"); err != nil {
			t.Errorf("a right key after the longest pause: %v", err)
		}
		if n := looked(); n != 1 {
			t.Errorf("%d keys after a pause", n)
		}
		if err := g.admit(addr, "acme/ann"); err != nil {
			t.Errorf("a key that was right before: %v", err)
		}
		time.Sleep(maxPaused + forgetTime + time.Second)
		g.admit(netip.MustParseAddr("192.0.2.1"), "")
		if len(g.from) != 1 {
			t.Errorf("%d addresses are remembered", len(g.from))
		}
	})
}

// TestA_21_GuessesAreBounded: the number of remembered addresses is limited, and further
// addresses are slowed down together.
func TestA_21_GuessesAreBounded(t *testing.T) {
	g := &guesses{log: zap.NewNop()}
	at := func(i int) netip.Addr {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(i))
		return netip.AddrFrom4(b)
	}
	for i := range maxAddresses {
		if err := g.admit(at(i), ""); err != nil {
			t.Fatal(err)
		}
	}
	refused := false
	for i := range 100 {
		refused = refused || g.admit(at(1<<20+i), "") != nil
	}
	if !refused || len(g.from) > maxAddresses+1 {
		t.Errorf("refused: %v; %d addresses", refused, len(g.from))
	}
	g = &guesses{log: zap.NewNop()}
	for i := range maxKnown + 10 {
		if err := g.admit(at(i), "acme/ann"); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.known) > maxKnown {
		t.Errorf("%d known keys", len(g.known))
	}
}
