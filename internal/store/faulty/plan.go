package faulty

import (
	"slices"
)

// Op names an operation of a store or of a journal.
type Op string

// The operations, those of a journal last.
const (
	Create        Op = "Create"
	Sent          Op = "Sent"
	Put           Op = "Put"
	GetTask       Op = "Task"
	Events        Op = "Events"
	List          Op = "List"
	Beat          Op = "Beat"
	Claim         Op = "Claim"
	Park          Op = "Park"
	Release       Op = "Release"
	PutDefinition Op = "PutDefinition"
	Definition    Op = "Definition"
	Position      Op = "Position"
	Recall        Op = "Recall"
	Remember      Op = "Remember"
	Load          Op = "Load"
	Append        Op = "Append"
	Commit        Op = "Commit"
	Inbound       Op = "Inbound"
)

// Writes are the operations that change what is kept, reads all others.
func Writes() []Op {
	return []Op{Create, Put, PutDefinition, Remember, Beat, Claim, Park, Release, Append, Commit}
}

// Mode is what a fault does to an operation.
type Mode int

// Modes.
const (
	// None is no fault.
	None Mode = iota
	// Fail: it is not done, and reported as failed.
	Fail
	// Lie: it is done, and reported as failed.
	Lie
	// Hang: it is not done, and returns when its context ends or the store is healed.
	Hang
)

// String is the mode's name.
func (m Mode) String() string { return [...]string{"none", "fail", "lie", "hang"}[m] }

// Plan decides about one operation after the other. It is called under a lock.
type Plan func(op Op) Mode

// Always has all of some operations meet a fault; none named are all.
func Always(m Mode, ops ...Op) Plan {
	return func(op Op) Mode {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return m
		}
		return None
	}
}

// Kth has only the k-th of some operations meet a fault, from 1; none named are all.
func Kth(k int, m Mode, ops ...Op) Plan {
	n := 0
	hit := Always(m, ops...)
	return func(op Op) Mode {
		if hit(op) == None {
			return None
		}
		if n++; n != k {
			return None
		}
		return m
	}
}

// From has the k-th of some operations, and every write after it, meet a fault.
func From(k int, m Mode, ops ...Op) Plan {
	var broken bool
	kth := Kth(k, m, ops...)
	return func(op Op) Mode {
		broken = broken || kth(op) != None
		if broken && slices.Contains(Writes(), op) {
			return m
		}
		return None
	}
}
