-- The requests of accounts and principals, which replicas count together: when the bucket of each is full
-- again, in microseconds. Without a row it is full.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE TABLE request_rate (
    owner   TEXT   NOT NULL PRIMARY KEY,
    full_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE request_rate;
