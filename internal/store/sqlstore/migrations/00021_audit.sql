-- Audit records, in one chain for each account. audit_head has the last record of each chain.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE TABLE audit (
    account TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    id      TEXT   NOT NULL,
    hash    BYTEA  NOT NULL,
    body    BYTEA  NOT NULL,
    PRIMARY KEY (account, seq)
);
CREATE UNIQUE INDEX audit_id ON audit (account, id);
CREATE TABLE audit_head (
    account TEXT   NOT NULL PRIMARY KEY,
    seq     BIGINT NOT NULL,
    hash    BYTEA  NOT NULL
);

-- +goose Down
DROP TABLE audit_head;
DROP TABLE audit;
