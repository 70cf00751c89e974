-- What runs hold and have spent of what their account may spend, by day; the sums of that by
-- account, where the row of day '' has what is in flight; and limits that were set by the API.
-- Programs that know schema 14 or later may use the result.

-- +goose Up
CREATE TABLE account_use (
    root          TEXT   NOT NULL,
    day           TEXT   NOT NULL,
    account       TEXT   NOT NULL,
    epoch         BIGINT NOT NULL,
    held_tokens   BIGINT NOT NULL,
    held_micros   BIGINT NOT NULL,
    spent_tokens  BIGINT NOT NULL,
    spent_micros  BIGINT NOT NULL,
    before_tokens BIGINT NOT NULL,
    before_micros BIGINT NOT NULL,
    PRIMARY KEY (root, day)
);
CREATE INDEX account_use_held ON account_use (root) WHERE held_tokens > 0 OR held_micros > 0;

CREATE TABLE account_day (
    account      TEXT   NOT NULL,
    day          TEXT   NOT NULL,
    held_tokens  BIGINT NOT NULL,
    held_micros  BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    spent_micros BIGINT NOT NULL,
    PRIMARY KEY (account, day)
);

CREATE TABLE account_limits (
    account    TEXT   NOT NULL PRIMARY KEY,
    changed    BIGINT NOT NULL,
    changed_by TEXT   NOT NULL,
    body       BYTEA  NOT NULL
);

-- +goose Down
DROP TABLE account_limits;
DROP TABLE account_day;
DROP INDEX account_use_held;
DROP TABLE account_use;
