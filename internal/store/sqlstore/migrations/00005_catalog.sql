-- Agents and teams that are not in the server's file. catalog_version counts the
-- changes, and names the last one; an entry has the count of the one that put it.
-- Programs that know schema 5 or later may use the result.

-- +goose Up
CREATE TABLE catalog (
    id         TEXT   NOT NULL PRIMARY KEY,
    version    BIGINT NOT NULL,
    created    BIGINT NOT NULL,
    changed    BIGINT NOT NULL,
    changed_by TEXT   NOT NULL,
    body       BYTEA  NOT NULL
);
CREATE TABLE catalog_version (
    one     BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    change  TEXT   NOT NULL
);
INSERT INTO catalog_version (one, version, change) VALUES (1, 0, '');

-- +goose Down
DROP TABLE catalog_version;
DROP TABLE catalog;
