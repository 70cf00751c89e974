package faulty

import (
	"slices"
)

// Op names an operation of a store or of a journal.
type Op string

// The operations. Those of a journal come last.
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

// Writes returns the operations that change stored data. All others only read.
func Writes() []Op {
	return []Op{Create, Put, PutDefinition, Remember, Beat, Claim, Park, Release, Append, Commit}
}

// Mode is the effect of a fault on an operation.
type Mode int

// The modes.
const (
	// None means no fault.
	None Mode = iota
	// Fail means that the operation is not run and is reported as failed.
	Fail
	// Lie means that the operation is run, but is reported as failed.
	Lie
	// Hang means that the operation is not run, and fails when its context ends or Heal is called.
	Hang
)

// String returns the name of the mode.
func (m Mode) String() string { return [...]string{"none", "fail", "lie", "hang"}[m] }

// Plan decides on the fault of each call in turn. It is called with a lock held.
type Plan func(op Op) Mode

// Always returns a plan with a fault in every call of the given operations, or of all if none is
// given.
func Always(m Mode, ops ...Op) Plan {
	return func(op Op) Mode {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return m
		}
		return None
	}
}

// Kth returns a plan with a fault in the k-th call of the given operations, or of all if none is
// given. The first call is number 1.
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

// From returns a plan with a fault in the k-th call of the given operations, if that is a write,
// and in every later write.
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
