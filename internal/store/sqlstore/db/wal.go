package db

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Sizes and numbers of SQLite's write-ahead log:
// https://www.sqlite.org/fileformat2.html#walformat
const (
	logHeader   = 32
	frameHeader = 24
	logMagic    = 0x377f0682 // the last bit means that checksums read big-endian words
)

// checkLog reads the write-ahead log that a crash has left, before SQLite opens a file. SQLite reads it up to the first
// frame with a wrong checksum and silently drops the rest, which after a crash is the end of the last transaction, which
// was never acknowledged. It is an error if another transaction of the same log follows, because then it was.
func checkLog(file string) error {
	f, err := os.Open(file + "-wal") //nolint:gosec // beside the store
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	at, err := damageOf(bufio.NewReaderSize(f, 1<<20))
	if err != nil || at < 0 {
		return err
	}
	return fmt.Errorf("its write-ahead log is damaged at byte %d, and SQLite would drop all that follows, which may have been acknowledged. "+
		"Check the disk, and restore a backup; or accept the loss with: sqlite3 %s 'PRAGMA wal_checkpoint(TRUNCATE)'", at, file)
}

// damageOf returns the offset of the first damage of a log that is not the end that a crash has torn, -1 without any.
func damageOf(r io.Reader) (at int64, err error) {
	h := make([]byte, logHeader)
	if _, err := io.ReadFull(r, h); err != nil {
		return -1, ended(err)
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if h[3]&1 == 1 {
		order = binary.BigEndian
	}
	size, salt := binary.BigEndian.Uint32(h[8:]), h[16:24]
	sum := logSum{}.add(order, h[:24])
	whole := binary.BigEndian.Uint32(h)&^1 == logMagic && sum == storedSum(h[24:])
	if !whole || size < 512 || size > 65536 || size&(size-1) != 0 {
		size, whole = pageBytes, false
	}
	at, committed := int64(-1), false
	if !whole {
		at = 0
	}
	frame := make([]byte, frameHeader+int(size))
	for offset := int64(logHeader); ; offset += int64(len(frame)) {
		if _, err := io.ReadFull(r, frame); err != nil {
			return -1, ended(err)
		}
		if string(frame[8:12]) != string(salt[:4]) && string(frame[12:16]) != string(salt[4:]) {
			continue // of an earlier log
		}
		if committed {
			return at, nil
		}
		sum = sum.add(order, frame[:8]).add(order, frame[frameHeader:])
		if at < 0 && (string(frame[8:16]) != string(salt) || sum != storedSum(frame[16:])) {
			at = offset
		}
		committed = at >= 0 && binary.BigEndian.Uint32(frame[4:]) != 0
	}
}

// pageBytes is the size of a page of a store.
const pageBytes = 4096

// ended returns nil for the end of a file, which may be in the middle of a frame.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// logSum is SQLite's checksum: two words, over pairs of words.
type logSum [2]uint32

// add returns the checksum after further data.
func (c logSum) add(order binary.ByteOrder, data []byte) logSum {
	for ; len(data) >= 8; data = data[8:] {
		c[0] += order.Uint32(data) + c[1]
		c[1] += order.Uint32(data[4:]) + c[0]
	}
	return c
}

// storedSum reads a checksum.
func storedSum(b []byte) logSum {
	return logSum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}
