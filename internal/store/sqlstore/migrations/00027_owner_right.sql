-- Until when owners of tokens and certificates may call, in Unix seconds: for each, the latest of those that were
-- accepted, by who has signed it. issuer begins with "certificate " for certificates.
-- Programs that know schema 17 or later may use the result.

-- +goose Up
CREATE TABLE owner_right (
    owner      TEXT   NOT NULL,
    signer     TEXT   NOT NULL,
    issuer     TEXT   NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (owner, issuer, signer)
);
CREATE INDEX owner_right_expires ON owner_right (expires_at);

-- +goose Down
DROP TABLE owner_right;
