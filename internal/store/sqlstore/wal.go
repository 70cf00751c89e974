package sqlstore

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// Sizes and numbers of SQLite's write-ahead log:
// https://www.sqlite.org/fileformat2.html#walformat
const (
	logHeader   = 32
	frameHeader = 24
	logMagic    = 0x377f0682 // the last bit means that checksums read big-endian words
	logVersion  = 3007000
)

// logScan is the content of a write-ahead log, damaged or not. SQLite reads up to the
// first frame whose checksum is wrong, and silently drops all that follows.
type logScan struct {
	flips   []flip     // single wrong bits, up to the first frame that cannot be corrected
	damage  []int64    // offsets of damage: the header, or frames
	commits int        // complete transactions that SQLite would drop
	dropped []logFrame // frames of those transactions that stay unreadable after flips are corrected
	page1   int64      // offset of the newest page 1 readable after that; 0 without one
}

// flip is a wrong bit: the offset of its byte, and the mask of the bit.
type flip struct {
	at   int64
	mask byte
}

// logFrame is a frame: a page as a transaction wrote it.
type logFrame struct {
	at     int64 // offset in the log
	kind   frameKind
	page   uint32 // page number
	commit bool   // the transaction ends with this frame
}

// valid reports whether the page is as it was written, after correction of a known
// wrong bit.
func (f logFrame) valid() bool { return f.kind == frameGood || f.kind == frameMended }

// frameKind is the result of the check of a frame.
type frameKind int

const (
	frameGood    frameKind = iota
	frameMended            // one bit is wrong, and it is known which
	frameFlipped           // one bit is wrong, and it is not known which
	frameBad               // of this generation of the log, and damaged or torn
	frameForeign           // of an earlier generation, or empty
)

// sum is SQLite's checksum: two words, over pairs of words.
type sum [2]uint32

// add returns the checksum after further data.
func (c sum) add(order binary.ByteOrder, data []byte) sum {
	for ; len(data) >= 8; data = data[8:] {
		c[0] += order.Uint32(data) + c[1]
		c[1] += order.Uint32(data[4:]) + c[0]
	}
	return c
}

// mend searches for single bits of data that make the checksum correct when they are
// flipped. It returns the last one, and whether it found zero, one or more. The
// checksum is linear, so the effect of each bit is computed from the end of the data.
func mend(order binary.ByteOrder, data []byte, have, want sum) (at int, mask byte, found int) {
	missing := sum{want[0] - have[0], want[1] - have[1]}
	weights := [2]sum{{1, 1}, {0, 1}} // for the two words of a pair
	for end := len(data); end >= 8; end -= 8 {
		for i, w := range weights {
			word := order.Uint32(data[end-8+4*i:])
			for b := range 32 {
				change := uint32(1) << b
				if word&change != 0 {
					change = -change
				}
				if change*w[0] != missing[0] || change*w[1] != missing[1] {
					continue
				}
				var right [4]byte
				order.PutUint32(right[:], word^1<<b)
				n, bit, _ := oneBit(right[:], data[end-8+4*i:][:4])
				if at, mask, found = end-8+4*i+n, bit, found+1; found > 1 {
					return at, mask, found
				}
			}
			weights[i] = sum{w[0] + w[1], w[0] + 2*w[1]}
		}
	}
	return at, mask, found
}

// oneBit returns where two texts of equal length differ, if they differ in exactly one
// bit.
func oneBit(a, b []byte) (at int, mask byte, ok bool) {
	n := 0
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			n += bits.OnesCount8(x)
			at, mask = i, x
		}
	}
	return at, mask, n == 1
}

// chain checks frame after frame: each checksum continues from the one before.
type chain struct {
	order binary.ByteOrder
	size  int    // of a page
	salt  []byte // of this generation of the log
	sum   sum    // the checksum from which the next frame continues
	known bool   // whether sum is known
}

// parseLogHeader returns the start of the chain. ok is false if the header is damaged.
func parseLogHeader(b []byte) (c chain, ok bool) {
	magic := binary.BigEndian.Uint32(b)
	c.order = binary.LittleEndian
	if magic&1 == 1 {
		c.order = binary.BigEndian
	}
	c.size, c.known = int(binary.BigEndian.Uint32(b[8:])), true
	c.salt, c.sum = append([]byte{}, b[16:24]...), sum{}.add(c.order, b[:24])
	ok = magic&^1 == logMagic && binary.BigEndian.Uint32(b[4:]) == logVersion && isPageSize(c.size) && c.sum == storedSum(b[24:])
	return c, ok
}

// isPageSize reports whether n is a valid page size of SQLite.
func isPageSize(n int) bool { return n >= 512 && n <= 65536 && n&(n-1) == 0 }

// storedSum reads a checksum.
func storedSum(b []byte) sum { return sum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])} }

// mendLogHeader finds the single wrong bit of a header. Several may make its checksum
// correct, such as one of the salt and one of the checksum: then it is the one with
// which the first frame is correct, too.
func mendLogHeader(r io.ReaderAt, b []byte) (c chain, f flip, ok bool) {
	for at := range b {
		for mask := byte(1); mask != 0; mask <<= 1 {
			b[at] ^= mask
			maybe, is := parseLogHeader(b)
			b[at] ^= mask
			switch {
			case is && maybe.starts(r):
				return maybe, flip{int64(at), mask}, true
			case is && !ok:
				c, f, ok = maybe, flip{int64(at), mask}, true
			}
		}
	}
	return c, f, ok
}

// starts reports whether the first frame of the log is correct.
func (c chain) starts(r io.ReaderAt) bool {
	b := make([]byte, frameHeader+c.size)
	if _, err := r.ReadAt(b, logHeader); err != nil {
		return false // frames reports it
	}
	kind, _ := c.next(b)
	return kind == frameGood
}

// maxForeign is the number of frames in a row of another generation after which the
// search for frames of this one ends.
const maxForeign = 1024

// readLog reads a log as SQLite does, and continues after damage. pageSize is the
// database's, for a log whose header does not have it.
func readLog(r io.ReaderAt, size int64, pageSize int) (s *logScan, err error) {
	s = &logScan{}
	if size < logHeader {
		return s, nil
	}
	b := make([]byte, logHeader)
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read the header of the log: %w", err)
	}
	c, ok := parseLogHeader(b)
	whole := ok
	if !ok {
		var f flip
		if c, f, ok = mendLogHeader(r, b); ok {
			s.flips = []flip{f}
		} else {
			c = chain{order: binary.LittleEndian, size: pageSize}
			if c.salt, err = saltOf(r, size, pageSize); err != nil {
				return nil, err
			}
		}
	}
	if !isPageSize(c.size) || len(c.salt) == 0 {
		return &logScan{}, nil
	}
	frames, flips, err := c.frames(r, size)
	if err != nil {
		return nil, err
	}
	s.judge(frames, flips, whole, ok)
	return s, nil
}

// saltOf returns the salt that two of the first frames of a log share; nil if no two
// do.
func saltOf(r io.ReaderAt, size int64, pageSize int) ([]byte, error) {
	var seen [][]byte
	for i := range int64(3) {
		at, salt := logHeader+i*int64(frameHeader+pageSize)+8, make([]byte, 8)
		if at+8 > size {
			break
		}
		if _, err := r.ReadAt(salt, at); err != nil {
			return nil, fmt.Errorf("read the log at byte %d: %w", at, err)
		}
		for _, s := range seen {
			if string(s) == string(salt) {
				return salt, nil
			}
		}
		seen = append(seen, salt)
	}
	return nil, nil
}

// frames checks the frames of a log.
func (c *chain) frames(r io.ReaderAt, size int64) (frames []logFrame, flips []flip, err error) {
	b := make([]byte, frameHeader+c.size)
	foreign := 0
	for at := int64(logHeader); at+int64(len(b)) <= size && foreign <= maxForeign; at += int64(len(b)) {
		if _, err := r.ReadAt(b, at); err != nil {
			return nil, nil, fmt.Errorf("read the log at byte %d: %w", at, err)
		}
		kind, f := c.next(b)
		if f.mask != 0 {
			b[f.at] ^= f.mask
			flips = append(flips, flip{at + f.at, f.mask})
		}
		if foreign++; kind != frameForeign {
			foreign = 0
		}
		frames = append(frames, logFrame{at: at, kind: kind, page: binary.BigEndian.Uint32(b), commit: binary.BigEndian.Uint32(b[4:]) != 0})
	}
	return frames, flips, nil
}

// next checks a frame. For a frame that can be corrected it returns the flip, with its
// offset in the frame.
func (c *chain) next(b []byte) (frameKind, flip) {
	stored, computed := storedSum(b[16:]), c.sum.add(c.order, b[:8]).add(c.order, b[frameHeader:])
	known, right := c.known, stored
	kind, f := frameBad, flip{}
	at, mask, ok := oneBit(b[8:16], c.salt)
	switch same := string(b[8:16]) == string(c.salt); {
	case known && same && computed == stored:
		kind = frameGood
	case known && ok && computed == stored:
		kind, f = frameMended, flip{int64(8 + at), mask}
	case !same:
		kind = frameForeign
	case known:
		kind, f, right = mendFrame(c.order, b, computed, stored)
	}
	c.sum, c.known = right, true // even after a bad frame, so that later ones can be checked
	return kind, f
}

// mendFrame finds the single wrong bit of a frame, and the correct checksum.
func mendFrame(order binary.ByteOrder, b []byte, computed, stored sum) (kind frameKind, f flip, right sum) {
	text := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, computed[0]), computed[1])
	n, bit, sumFlip := oneBit(b[16:24], text)
	data := append(append(make([]byte, 0, len(b)), b[:8]...), b[frameHeader:]...)
	at, mask, found := mend(order, data, computed, stored)
	switch {
	case sumFlip && found == 0:
		return frameMended, flip{int64(16 + n), bit}, computed
	case !sumFlip && found == 0:
		return frameBad, flip{}, stored
	case sumFlip || found > 1:
		return frameFlipped, flip{}, stored
	case at >= 8:
		at += frameHeader - 8
	}
	return frameMended, flip{int64(at), mask}, stored
}

// judge distinguishes damage from the torn end that a crash leaves. SQLite syncs a
// transaction before it writes the next one, so only the last transaction can be torn:
// if the first frame of the next one exists, an unreadable transaction was complete. A
// torn frame also has more than one wrong bit. whole reports that the header is
// undamaged, known that it is undamaged or can be corrected.
func (s *logScan) judge(frames []logFrame, flips []flip, whole, known bool) {
	stuck := slices.IndexFunc(frames, func(f logFrame) bool { return !f.valid() })
	if stuck < 0 {
		stuck = len(frames)
	}
	wrong := 0 // the first frame that SQLite does not read
	if whole {
		for wrong < len(frames) && frames[wrong].kind == frameGood {
			wrong++
		}
	}
	readable, last := 0, 0 // end of the last commit before stuck, and of the last commit of all
	later := false
	for i, f := range frames {
		if i > stuck && f.valid() && frames[i-1].commit && frames[i-1].kind != frameForeign {
			later = true
		}
		if torn := stuck == len(frames) || frames[stuck].kind != frameFlipped; i >= stuck && !torn && f.commit && f.kind != frameForeign {
			later = true
			last = i + 1
		}
		if f.commit && f.valid() {
			later = later || !known
			last = i + 1
			if i < stuck {
				readable = i + 1
			}
		}
	}
	if !later {
		last = readable
	}
	for i, f := range frames[:last] {
		if f.kind != frameGood {
			s.damage = append(s.damage, f.at)
		}
		if i >= wrong && f.commit && f.kind != frameForeign {
			s.commits++
		}
		if f.page == 1 && i < readable {
			s.page1 = f.at + frameHeader
		}
	}
	s.dropped = frames[readable:last]
	if !whole && s.commits > 0 {
		s.damage = append([]int64{0}, s.damage...)
	}
	if readable == 0 {
		s.flips = nil
	}
	for _, f := range flips {
		if readable > 0 && (readable == len(frames) || f.at < frames[readable].at) {
			s.flips = append(s.flips, f)
		}
	}
}
