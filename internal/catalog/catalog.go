// Package catalog defines how stores keep the teams and agents that are not in the configuration
// file.
package catalog

import (
	"context"
	"errors"
	"time"
)

// ErrChanged is returned if the catalog has changed since the version that a change was based on.
var ErrChanged = errors.New("the catalog has changed")

// Entry is a document that defines either a team together with its agents, or a single agent.
type Entry struct {
	// ID is the id of that team or agent.
	ID string
	// Data is the document, YAML in the format of the configuration file.
	Data []byte
	// Version is the version of the catalog in which the entry was put. The store sets it.
	Version int64
	// Created and Changed are the times when the entry was first and last put.
	Created, Changed time.Time
	// Account is the account to which the entry belongs.
	Account string
	// ChangedBy is the owner, account/principal, who put it last.
	ChangedBy string
}

// Snapshot is the content of the catalog at a version.
type Snapshot struct {
	// Version grows with each change; an empty catalog that was never changed has version 0.
	Version int64
	// Entries are sorted by ID.
	Entries []Entry
}

// Change is a set of changes that are made atomically.
type Change struct {
	Put    []Entry
	Delete []string // ids; unknown ids are ignored
}

// Store stores a catalog that all replicas share. Implementations are safe for concurrent use.
type Store interface {
	// Catalog returns the current catalog.
	Catalog(ctx context.Context) (Snapshot, error)
	// CatalogVersion returns the current version of the catalog.
	CatalogVersion(ctx context.Context) (int64, error)
	// ChangeCatalog applies a change to the catalog at the given version and returns
	// the new version. When it returns, the change is durable. The error is ErrChanged
	// if the catalog has another version, and runs.ErrBusy if a team to delete has
	// active collaborations.
	ChangeCatalog(ctx context.Context, version int64, c Change) (int64, error)
	// WatchCatalog returns a channel that receives a value when the catalog may have
	// changed, through this process or another one. The caller must call stop.
	WatchCatalog() (wake <-chan struct{}, stop func())
}
