-- One text for SQLite and PostgreSQL: only type names that both take. Times are
-- milliseconds since 1970, task.status_at nanoseconds; sum is a CRC-32C.
-- Programs that know schema 1 or later may use the result.

-- +goose Up
CREATE TABLE task (
    id         TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    state      BIGINT NOT NULL,
    status_at  BIGINT NOT NULL,
    visible    BIGINT NOT NULL,
    snap_seq   BIGINT NOT NULL DEFAULT 0,
    snap_sum   BIGINT NOT NULL DEFAULT 0,
    snap       BYTEA
);
CREATE INDEX task_owner ON task (owner, status_at DESC, id DESC);
CREATE INDEX task_agent ON task (owner, agent, status_at DESC, id DESC);
CREATE INDEX task_context ON task (owner, context_id, status_at DESC, id DESC);
CREATE INDEX task_state ON task (owner, state, status_at DESC, id DESC);

CREATE TABLE run (
    id     TEXT   NOT NULL PRIMARY KEY,
    owner  TEXT   NOT NULL,
    holder TEXT,
    epoch  BIGINT NOT NULL DEFAULT 0,
    seq    BIGINT NOT NULL,
    bytes  BIGINT NOT NULL,
    inputs BIGINT NOT NULL DEFAULT 0,
    due    BIGINT,
    ended  BIGINT,
    deltas BIGINT NOT NULL DEFAULT 0,
    definition TEXT
);
CREATE INDEX run_due ON run (due) WHERE due IS NOT NULL;
CREATE INDEX run_holder ON run (holder) WHERE holder IS NOT NULL;
CREATE INDEX run_ended ON run (ended) WHERE ended IS NOT NULL;
CREATE INDEX run_definition ON run (definition) WHERE definition IS NOT NULL;
CREATE INDEX run_deltas ON run (ended) WHERE ended IS NOT NULL AND deltas > 0;

CREATE TABLE replica (
    id      TEXT   NOT NULL PRIMARY KEY,
    expires BIGINT NOT NULL
);

CREATE TABLE event (
    id    TEXT   NOT NULL,
    seq   BIGINT NOT NULL,
    scope TEXT   NOT NULL,
    delta BIGINT NOT NULL,
    sum   BIGINT NOT NULL,
    body  BYTEA  NOT NULL,
    PRIMARY KEY (id, seq)
);

CREATE TABLE inbox (
    id   TEXT   NOT NULL,
    n    BIGINT NOT NULL,
    sum  BIGINT NOT NULL,
    body BYTEA  NOT NULL,
    PRIMARY KEY (id, n)
);

-- What was asked for once: a message of an owner (root is empty), or a command to a root.
CREATE TABLE request (
    owner   TEXT   NOT NULL,
    root    TEXT   NOT NULL,
    message TEXT   NOT NULL,
    digest  BYTEA,
    id      TEXT   NOT NULL,
    n       BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (owner, root, message)
);
CREATE INDEX request_id ON request (id);
CREATE INDEX request_at ON request (at);

CREATE TABLE definition (
    revision TEXT   NOT NULL PRIMARY KEY,
    at       BIGINT NOT NULL,
    body     BYTEA  NOT NULL
);

CREATE TABLE setting (
    name  TEXT  NOT NULL PRIMARY KEY,
    value BYTEA NOT NULL
);

-- +goose Down
DROP TABLE setting;
DROP TABLE definition;
DROP TABLE request;
DROP TABLE inbox;
DROP TABLE event;
DROP TABLE replica;
DROP TABLE run;
DROP TABLE task;
