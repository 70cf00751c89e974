-- What runs hold and have spent of the budgets that the runs of a message share: task is the root task of the run
-- that has the limit, and scope the one in which it applies there. The row of that run is the one that is locked.
-- Programs that know only earlier schemas give each run budgets of its own.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE TABLE shared_use (
    task         TEXT   NOT NULL,
    scope        TEXT   NOT NULL,
    run          TEXT   NOT NULL,
    epoch        BIGINT NOT NULL,
    held_tokens  BIGINT NOT NULL,
    held_micros  BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    spent_micros BIGINT NOT NULL,
    PRIMARY KEY (task, scope, run)
);

-- +goose Down
DROP TABLE shared_use;
