package wire

import (
	"encoding/json"
	"maps"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/agentteams/team-server/pkg/agent"
)

// contractError is the body of an error in the shape of the contract.
type contractError struct {
	Success    bool              `json:"success"`
	Code       string            `json:"error_code"`
	Message    string            `json:"error_message"`
	Details    map[string]string `json:"details"`
	RetryAfter *int              `json:"retry_after"` // seconds, rounded up; null where waiting does not help
}

// ContractError encodes st as an error of the contract. The details are the metadata of the
// error, and for each invalid field what is wrong with it.
func ContractError(st *status.Status, _ int) ([]byte, error) {
	info := InfoOf(st)
	e := contractError{Code: info.GetReason(), Message: st.Message(), Details: map[string]string{}}
	if e.Code == "" {
		e.Code = impliedReason(st.Code())
	}
	if e.Code == agent.ReasonWaitTimeout { // the contract has one word for both
		e.Code = agent.ReasonTimeout
	}
	maps.Copy(e.Details, info.GetMetadata())
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				e.Details[v.GetField()] = v.GetDescription()
			}
		}
	}
	if wait := RetryAfter(st); wait > 0 {
		seconds := int((wait + time.Second - 1) / time.Second)
		e.RetryAfter = &seconds
	}
	return json.Marshal(e)
}
