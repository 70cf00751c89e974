-- The encryption keys that a replica has, each as ID:FINGERPRINT, the one that it would encrypt with first, with
-- spaces between them. A store that is encrypted under one refuses programs that know only earlier schemas.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
ALTER TABLE replica ADD COLUMN keys TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE replica DROP COLUMN keys;
