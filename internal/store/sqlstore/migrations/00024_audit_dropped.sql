-- dropped and dropped_hash are of the last record of a chain that is no longer stored. Programs that know only earlier
-- schemas append to a chain without its first records, but report it as broken when they verify it.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
ALTER TABLE audit_head ADD COLUMN dropped BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN dropped_hash BYTEA;

-- +goose Down
ALTER TABLE audit_head DROP COLUMN dropped_hash;
ALTER TABLE audit_head DROP COLUMN dropped;
