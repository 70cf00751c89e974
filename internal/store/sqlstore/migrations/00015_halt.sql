-- Halts: what no work begins for. halt_version counts the changes, replica.halts is the last
-- change that a replica has applied, halt_task has what each halt has stopped, and
-- run.halted is 1 for runs that wait for the end of a halt.
-- Programs that know schema 14 or later may use the result.

-- +goose Up
CREATE TABLE halt (
    kind    BIGINT NOT NULL,
    name    TEXT   NOT NULL,
    version BIGINT NOT NULL,
    body    BYTEA  NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE halt_version (
    one     BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO halt_version (one, version) VALUES (1, 0);
CREATE TABLE halt_task (
    version BIGINT NOT NULL,
    id      TEXT   NOT NULL,
    owner   TEXT   NOT NULL,
    PRIMARY KEY (version, id)
);
ALTER TABLE replica ADD COLUMN halts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN halted BIGINT NOT NULL DEFAULT 0;
CREATE INDEX run_halted ON run (id) WHERE halted = 1;
CREATE INDEX run_open ON run (id) WHERE ended IS NULL;

-- +goose Down
DROP INDEX run_open;
DROP INDEX run_halted;
ALTER TABLE run DROP COLUMN halted;
ALTER TABLE replica DROP COLUMN halts;
DROP TABLE halt_task;
DROP TABLE halt_version;
DROP TABLE halt;
