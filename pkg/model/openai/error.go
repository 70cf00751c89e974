package openai

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	openai "github.com/sashabaranov/go-openai"

	"github.com/agentteams/team-server/pkg/model"
)

// endpointError returns what the endpoint reports in an error, or nil.
func endpointError(err error) *model.EndpointError {
	var api *openai.APIError
	if !errors.As(err, &api) {
		return nil
	}
	return &model.EndpointError{Status: statusOf(api), Message: api.Message, QuotaExhausted: api.Code == "insufficient_quota"}
}

// statusOf returns the HTTP status for an error within a stream.
func statusOf(e *openai.APIError) int {
	if code, err := strconv.Atoi(fmt.Sprint(e.Code)); err == nil && code >= 400 && code <= 599 {
		return code
	}
	switch {
	case e.Type == "invalid_request_error":
		return http.StatusBadRequest
	case e.Type == "rate_limit_error", e.Code == "rate_limit_exceeded", e.Code == "insufficient_quota":
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}
