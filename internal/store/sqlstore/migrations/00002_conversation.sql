-- What runs remember of the context they belong to. last is the place of the last
-- entry, used when something was added, in milliseconds since 1970; sum is a CRC-32C.
-- Programs that know schema 1 or later may use the result.

-- +goose Up
CREATE TABLE conversation (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    last       BIGINT NOT NULL,
    used       BIGINT NOT NULL,
    PRIMARY KEY (owner, context_id)
);
CREATE INDEX conversation_used ON conversation (used);

CREATE TABLE history (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    path       TEXT   NOT NULL,
    n          BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    sum        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (owner, context_id, path, n)
);
CREATE INDEX history_task ON history (owner, context_id, task);

-- The whole state of a path from a place on.
CREATE TABLE conversation_state (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    path       TEXT   NOT NULL,
    n          BIGINT NOT NULL,
    sum        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (owner, context_id, path, n)
);

-- +goose Down
DROP TABLE conversation_state;
DROP TABLE history;
DROP TABLE conversation;
