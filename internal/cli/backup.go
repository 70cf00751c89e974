package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/agentteams/team-server/internal/store"
	"github.com/agentteams/team-server/internal/store/sqlstore"
)

// persistent returns an error unless url names a store that outlives its process. command is the one that needs
// it.
func persistent(command, url string) error {
	switch url {
	case "":
		return usagef("%s needs --store URL, for example --store sqlite:team.db", command)
	case store.MemoryURL:
		return usagef("--store memory: a memory store belongs to one process; use sqlite:FILE or postgres://USER@HOST/DATABASE")
	}
	return checkStore("store", url)
}

// ofStore returns an error about a store, without passwords.
func ofStore(url string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", store.Redacted(url), store.Conceal(err.Error(), url))
}

// ofCommand returns the error of a command with a store: why ctx has ended, or what is wrong with the file or the store.
func ofCommand(ctx context.Context, url string, err error) error {
	var file sqlstore.FileError
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case errors.As(err, &file):
		return err
	}
	return ofStore(url, err)
}

// Backup writes a backup of a store to a file and prints what it contains. Servers may use the store.
func (s *Shell) Backup(ctx context.Context, url, file string, force bool) error {
	if err := persistent("backup", url); err != nil {
		return err
	}
	c, err := sqlstore.Backup(ctx, url, file, force, s.log(zapcore.ErrorLevel))
	if err != nil {
		return ofCommand(ctx, url, err)
	}
	return s.reportCopied("backed up", file, copied{File: file, Content: c})
}

// Restore copies a backup to an empty store and prints what it has restored.
func (s *Shell) Restore(ctx context.Context, file, url string) error {
	if err := persistent("restore", url); err != nil {
		return err
	}
	c, err := sqlstore.Restore(ctx, file, url, s.log(zapcore.ErrorLevel))
	if err != nil {
		return ofCommand(ctx, url, err)
	}
	to := store.Redacted(url)
	return s.reportCopied("restored", to, copied{Store: to, Content: c})
}

// copied is a backup or restored store, as it is printed with -o json.
type copied struct {
	File  string `json:"file,omitempty"`
	Store string `json:"store,omitempty"`
	sqlstore.Content
}

// reportCopied prints what was copied. done is what was done, and place the file or store to which it was written.
func (s *Shell) reportCopied(done, place string, c copied) error {
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(c)
	}
	out := s.text()
	fmt.Fprintf(out, "%s %s: %d tasks of %d accounts, %d of them not ended\n", done, place, c.Tasks, c.Accounts, c.Unfinished)
	fmt.Fprintf(out, "also %d conversations, %d boards, %d teams and agents of the API, %d API keys, %d webhooks, %d audit records\n",
		c.Conversations, c.Boards, c.Catalog, c.Keys, c.Webhooks, c.Audit)
	fmt.Fprintf(out, "as of %s; schema %d; %d rows, %s\n", c.At.UTC().Format(time.RFC3339), c.Schema, c.Rows, bytesText(c.Bytes))
	if len(c.EncryptionKeys) > 0 {
		fmt.Fprintf(out, "its secrets can be read only with these keys of server.encryption: %v\n", c.EncryptionKeys)
	}
	return nil
}

// bytesText returns a size for people.
func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// StoreStats prints numbers about a store, which servers may use: of the accounts with the most stored bytes, top
// of them. What takes longer than limit to read is left out.
func (s *Shell) StoreStats(ctx context.Context, url string, top int, limit time.Duration) error {
	switch {
	case top < 0:
		return usagef("--top %d: expected 0 or more", top)
	case limit <= 0:
		return usagef("--timeout %s: expected more than 0", limit)
	}
	if err := persistent("store stats", url); err != nil {
		return err
	}
	late := fmt.Errorf("the store could not be opened within %s; allow more time with --timeout", limit)
	limited, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	v, err := sqlstore.OpenView(limited, url)
	if err != nil {
		return ofCommand(ctx, url, cmp.Or(context.Cause(limited), err))
	}
	defer v.Close() //nolint:errcheck // only read
	stats, err := v.Stats(limited, top)
	if err != nil {
		return ofCommand(ctx, url, cmp.Or(context.Cause(limited), err))
	}
	if s.JSON {
		return json.NewEncoder(s.Out).Encode(struct {
			Store string `json:"store"`
			sqlstore.Stats
		}{store.Redacted(url), stats})
	}
	return s.stats(url, stats)
}

// stats prints numbers about a store.
func (s *Shell) stats(url string, st sqlstore.Stats) error {
	use := "no server uses it"
	switch {
	case st.Replicas > 0:
		use = fmt.Sprintf("%d servers use it", st.Replicas)
	case st.InUse:
		use = "a server uses it"
	}
	fmt.Fprintf(s.text(), "%s: %s, schema %d (this version knows %d); %s\n\n", store.Redacted(url), bytesText(st.Bytes), st.Schema, st.Known, use)
	err := columns(s, st.Tasks, "TASKS\tCOUNT\tOLDEST\tNEWEST", func(t sqlstore.StateStats) []string {
		return []string{t.State, fmt.Sprint(t.Count), t.Oldest.Format(time.RFC3339), t.Newest.Format(time.RFC3339)}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(s.text())
	err = columns(s, st.Tables, "RECORDS\tCOUNT\tSIZE", func(t sqlstore.TableStats) []string {
		count, size := fmt.Sprint(t.Rows), "-"
		if t.Estimated {
			count = "about " + count
		}
		if t.Bytes > 0 {
			size = bytesText(t.Bytes)
		}
		return []string{t.Name, count, size}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(s.text())
	err = columns(s, st.Accounts, fmt.Sprintf("ACCOUNT (%d OF %d)\tTASKS\tNOT ENDED\tEVENTS", len(st.Accounts), st.AllAccounts), func(a sqlstore.AccountStats) []string {
		return []string{a.Account, fmt.Sprint(a.Tasks), fmt.Sprint(a.Open), bytesText(a.Bytes)}
	})
	if len(st.Missing) > 0 {
		s.sayf("not read in time: %v; allow more time with --timeout", st.Missing)
	}
	return err
}
