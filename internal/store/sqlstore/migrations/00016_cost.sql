-- Costs: what runs have spent by hour, account, agent, team and model. The rows with root '' are the sums of
-- runs that have ended, which stay when these are deleted; the others belong to a run. seq is the
-- sequence number of the run up to which its events are included. What was spent before this
-- schema is not included.
-- Programs that know schema 16 or later may use the result.

-- +goose Up
CREATE TABLE cost (
    root                    TEXT   NOT NULL,
    hour                    BIGINT NOT NULL,
    account                 TEXT   NOT NULL,
    path                    TEXT   NOT NULL,
    team                    TEXT   NOT NULL,
    model                   TEXT   NOT NULL,
    seq                     BIGINT NOT NULL,
    input_tokens            BIGINT NOT NULL,
    output_tokens           BIGINT NOT NULL,
    cost_micros             BIGINT NOT NULL,
    model_calls             BIGINT NOT NULL,
    tool_calls              BIGINT NOT NULL,
    cached_input_tokens     BIGINT NOT NULL,
    cache_write_tokens      BIGINT NOT NULL,
    reasoning_tokens        BIGINT NOT NULL,
    estimated_input_tokens  BIGINT NOT NULL,
    estimated_output_tokens BIGINT NOT NULL,
    estimated_cost_micros   BIGINT NOT NULL,
    claimed_input_tokens    BIGINT NOT NULL,
    claimed_output_tokens   BIGINT NOT NULL,
    claimed_cost_micros     BIGINT NOT NULL,
    PRIMARY KEY (root, hour, account, path, team, model)
);
CREATE INDEX cost_hour ON cost (hour);
CREATE INDEX cost_account ON cost (account, hour);

-- +goose Down
DROP INDEX cost_account;
DROP INDEX cost_hour;
DROP TABLE cost;
