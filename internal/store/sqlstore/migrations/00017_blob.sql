-- Values of at least 32 KiB in events and snapshots of a run, such as files, each stored once for the
-- run. Records of earlier versions hold such values themselves.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE TABLE blob (
    id   TEXT  NOT NULL,
    hash BYTEA NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (id, hash)
);

-- +goose Down
DROP TABLE blob;
