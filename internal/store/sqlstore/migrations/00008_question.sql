-- Open questions that roles may answer: the event that asks, once for each role. What
-- was asked before there was this table is not in it: no file could ask a role.
-- Programs that know schema 8 or later may use the result.

-- +goose Up
CREATE TABLE question (
    id      TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    role    TEXT   NOT NULL,
    account TEXT   NOT NULL,
    PRIMARY KEY (id, seq, role)
);
CREATE INDEX question_role ON question (account, role, id, seq);

-- +goose Down
DROP TABLE question;
