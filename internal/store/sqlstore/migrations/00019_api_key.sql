-- API keys that were made by the API: their hashes, and what they say of their owners.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE TABLE api_key (
    id   TEXT  NOT NULL PRIMARY KEY,
    hash BYTEA NOT NULL,
    body BYTEA NOT NULL
);

-- +goose Down
DROP TABLE api_key;
