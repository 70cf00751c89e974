-- account is the account to which an entry belongs; '' for entries of earlier versions.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
ALTER TABLE catalog ADD COLUMN account TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE catalog DROP COLUMN account;
