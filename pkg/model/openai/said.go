package openai

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	openai "github.com/sashabaranov/go-openai"

	"github.com/agentteams/team-server/pkg/model"
)

// said finds what the endpoint reports of a failure.
func said(err error) *model.Said {
	var api *openai.APIError
	if !errors.As(err, &api) {
		return nil
	}
	return &model.Said{Status: statusOf(api), Message: api.Message, UsedUp: api.Code == "insufficient_quota"}
}

// statusOf is the HTTP status that an error within a stream would have had.
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
