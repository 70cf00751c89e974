package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/agentteams/team-server/pkg/agent"
)

// Reports tests that a response of 200 that reports a failure, in any of the forms that the bodies of 4xx have,
// is an error with its text. connect returns a model whose endpoint is reached through a client.
func Reports(t *testing.T, connect func(*http.Client) agent.Model) {
	t.Helper()
	for body, says := range map[string]string{ //nolint:gosec // no credentials
		`{"detail":"No such lane."}`:                                                                     "No such lane.",
		`{"detail":[{"loc":["body"],"msg":"No such lane."}]}`:                                            "No such lane.",
		`{"message":"No such lane."}`:                                                                    "No such lane.",
		`{"message":{"text":"No such lane."}}`:                                                           "No such lane.",
		`{"msg":"No such lane."}`:                                                                        "No such lane.",
		`{"status":"failure","message":"No such lane.","choices":null}`:                                  "No such lane.",
		`{"error":"No such lane."}`:                                                                      "No such lane.",
		`{"error":{"message":"No such lane."}}`:                                                          "No such lane.",
		`[{"error":{"message":"No such lane."}}]`:                                                        "No such lane.",
		`{"errors":[{"message":"No such lane."}]}`:                                                       "No such lane.",
		`{"error":"invalid_lane","error_description":"No such lane."}`:                                   "invalid_lane: No such lane.",
		`{"title":"Bad lane","status":422,"detail":"No such lane."}`:                                     "Bad lane: No such lane.",
		`{"error":true,"message":"No such lane."}`:                                                       "No such lane.",
		`{"object":"error","message":"No such lane."}`:                                                   "No such lane.",
		`{"base_resp":{"status_code":2013,"status_msg":"No such lane."}}`:                                "No such lane.",
		`{"id":"1","choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`: "the quota of model",
		`{"id":"1","choices":[],"usage":{"total_tokens":0},"base_resp":{"status_code":1008,"status_msg":"no more money"}}`: "the quota of model",
		`{"base_resp":{"status_code":1004,"status_msg":"No such lane."}}`:                                                  "check the model's api_key: No such lane.",
		`{"base_resp":{"status_code":2061,"status_msg":"No such lane."}}`:                                                  "does not permit this request (HTTP 403)",
		`{"error_code":336003,"error_msg":"No such lane.","id":"1"}`:                                                       "No such lane.",
		`{"code":20012,"message":"No such lane.","data":null}`:                                                             "No such lane.",
		`{"success":false,"errors":[{"code":7000,"message":"No such lane."}]}`:                                             "No such lane.",
		`{"Response":{"Error":{"Code":"FailedOperation","Message":"No such lane."},"RequestId":"r"}}`:                      "No such lane.",
		`{"header":{"code":10013,"message":"No such lane.","sid":"s","status":2}}`:                                         "No such lane.",
		`No such lane.`:              "No such lane.",
		`"No such lane."`:            "No such lane.",
		`{'error': 'No such lane.'}`: "No such lane.",
		`{"error":{"message":"Your credit balance is too low."}}`:        "the quota of model",
		`{"message":"This model's maximum context length is 10 tokens"}`: "shorten what the agent reads",
	} {
		for kind, sent := range map[string]string{"text/event-stream": "data: " + body + "\n\ndata: [DONE]\n\n", "application/json": body} {
			if kind == "application/json" && (!json.Valid([]byte(body)) || body[0] == '"') {
				continue
			}
			e := Failure(t, connect(Answering(kind, sent)))
			if e.Reason != agent.ReasonUnavailable && e.Reason != agent.ReasonContextTooLong || !e.Fresh || !strings.Contains(e.Message, says) {
				t.Errorf("%s %s: %v", kind, sent, e)
			}
		}
	}
}
