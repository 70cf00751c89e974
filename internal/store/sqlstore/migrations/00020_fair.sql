-- The runs that are due, by owner: claims give each account its share.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE INDEX run_due_owner ON run (owner, due) WHERE due IS NOT NULL;

-- +goose Down
DROP INDEX run_due_owner;
