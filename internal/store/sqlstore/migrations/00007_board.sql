-- The boards of teams. Each change raises board.seq, in the transaction that makes
-- it; op makes it unique. n is the place of an item in the order in which they were
-- added, state and assignee are as they were put: with a lease that is over, in
-- milliseconds since 1970, an item can be claimed. recipient is NULL where an event
-- is no message, and empty where it is for all. sum is a CRC-32C.
-- Programs that know schema 7 or later may use the result.

-- +goose Up
CREATE TABLE board (
    account TEXT   NOT NULL,
    team    TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    PRIMARY KEY (account, team)
);

CREATE TABLE work_item (
    account  TEXT   NOT NULL,
    team     TEXT   NOT NULL,
    id       TEXT   NOT NULL,
    n        BIGINT NOT NULL,
    state    BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    assignee TEXT   NOT NULL,
    lease    BIGINT NOT NULL,
    sum      BIGINT NOT NULL,
    body     BYTEA  NOT NULL,
    PRIMARY KEY (account, team, id)
);

CREATE TABLE work_item_need (
    account TEXT NOT NULL,
    team    TEXT NOT NULL,
    needs   TEXT NOT NULL,
    id      TEXT NOT NULL,
    PRIMARY KEY (account, team, needs, id)
);

CREATE TABLE board_event (
    account   TEXT   NOT NULL,
    team      TEXT   NOT NULL,
    seq       BIGINT NOT NULL,
    op        TEXT   NOT NULL,
    digest    BYTEA,
    sender    TEXT   NOT NULL,
    recipient TEXT,
    sum       BIGINT NOT NULL,
    body      BYTEA  NOT NULL,
    PRIMARY KEY (account, team, seq),
    UNIQUE (account, team, op)
);

CREATE TABLE board_read (
    account TEXT   NOT NULL,
    team    TEXT   NOT NULL,
    reader  TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    PRIMARY KEY (account, team, reader)
);

-- +goose Down
DROP TABLE board_read;
DROP TABLE board_event;
DROP TABLE work_item_need;
DROP TABLE work_item;
DROP TABLE board;
