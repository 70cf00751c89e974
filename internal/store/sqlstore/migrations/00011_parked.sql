-- parked says why a run is not tried again until somebody has it tried; NULL: it is not parked.
-- Programs that know schema 11 or later may use the result.

-- +goose Up
ALTER TABLE run ADD COLUMN parked TEXT;
CREATE INDEX run_parked ON run (parked) WHERE parked IS NOT NULL;

-- +goose Down
DROP INDEX run_parked;
ALTER TABLE run DROP COLUMN parked;
