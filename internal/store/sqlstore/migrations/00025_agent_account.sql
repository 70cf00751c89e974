-- agent_account is the account that has made the agent of a task by the API, '' for an agent of the file. Tasks that
-- programs with earlier schemas have created have ''.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
ALTER TABLE task ADD COLUMN agent_account TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE task DROP COLUMN agent_account;
