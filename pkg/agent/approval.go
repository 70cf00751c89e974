package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Approvers are the people who decide whether a tool call, a delegation or a plan may begin.
type Approvers struct {
	// Roles of these people. Empty means the owner of the task.
	Roles []string
	// Expires is the time after which a call that nobody has decided about is rejected; 0 means 7 days.
	Expires time.Duration
}

// ApprovedTool is a Tool some of whose calls begin only with the approval of people.
type ApprovedTool interface {
	Tool
	// Approvers returns who decides about a call with these arguments, or nil if the call needs no
	// approval. arguments is valid JSON. It is called before every attempt, so it must return the
	// same for the same arguments. It must be safe for concurrent use.
	Approvers(arguments json.RawMessage) *Approvers
}

// The words with which people decide about an approval.
const (
	WordApprove    = "approve"
	WordApproveAll = "approve all"
	WordReject     = "reject"
)

// HashOf returns the SHA-256 of texts, separated by a zero byte, in hexadecimal.
func HashOf(texts ...string) string {
	h := sha256.New()
	for i, t := range texts {
		if i > 0 {
			h.Write([]byte{0})
		}
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}
