-- Receivers that are told about tasks. seen is the sequence of the last event that
-- was dealt with, part how many notifications of the next one were; due is when
-- somebody shall look, and while somebody does, when that claim lapses; NULL is
-- when something happens. body is sealed; version is that of the protocol, empty the
-- present one. run.push is 1 once a run has had one.
-- Programs that know schema 3 or later may use the result.

-- +goose Up
ALTER TABLE run ADD COLUMN push BIGINT NOT NULL DEFAULT 0;

CREATE TABLE push_config (
    id      TEXT   NOT NULL,
    scope   TEXT   NOT NULL,
    config  TEXT   NOT NULL,
    owner   TEXT   NOT NULL,
    body    BYTEA  NOT NULL,
    version TEXT   NOT NULL DEFAULT '',
    epoch   BIGINT NOT NULL DEFAULT 0,
    due     BIGINT,
    held    BIGINT NOT NULL DEFAULT 0,
    seen    BIGINT NOT NULL,
    part    BIGINT NOT NULL DEFAULT 0,
    tries   BIGINT NOT NULL DEFAULT 0,
    since   BIGINT NOT NULL DEFAULT 0,
    failing BIGINT NOT NULL DEFAULT 0,
    ended   BIGINT NOT NULL DEFAULT 0,
    error   TEXT   NOT NULL DEFAULT '',
    PRIMARY KEY (id, scope, config)
);
CREATE INDEX push_due ON push_config (due) WHERE due IS NOT NULL;
CREATE INDEX push_owner ON push_config (owner) WHERE ended = 0;

CREATE TABLE push_dead (
    id     TEXT   NOT NULL,
    scope  TEXT   NOT NULL,
    config TEXT   NOT NULL,
    seq    BIGINT NOT NULL,
    part   BIGINT NOT NULL,
    tries  BIGINT NOT NULL,
    error  TEXT   NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (id, scope, config, seq, part)
);

-- +goose Down
DROP TABLE push_dead;
DROP TABLE push_config;
ALTER TABLE run DROP COLUMN push;
