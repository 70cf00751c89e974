-- A message id counts for each agent of its own: agent is the one that a message was
-- for, empty for keys that this server makes, which have a slash, and for commands.
-- Programs that know schema 9 or later may use the result.

-- +goose Up
CREATE TABLE agent_request (
    owner   TEXT   NOT NULL,
    message TEXT   NOT NULL,
    agent   TEXT   NOT NULL,
    root    TEXT   NOT NULL,
    digest  BYTEA,
    id      TEXT   NOT NULL,
    n       BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (owner, message, agent, root)
);
INSERT INTO agent_request (owner, message, agent, root, digest, id, n, at)
SELECT owner, message,
    CASE WHEN root = '' AND message NOT LIKE '%/%' THEN COALESCE((SELECT task.agent FROM task WHERE task.id = request.id), '') ELSE '' END,
    root, digest, id, n, at
FROM request;
DROP TABLE request;
ALTER TABLE agent_request RENAME TO request;
CREATE INDEX request_id ON request (id);
CREATE INDEX request_at ON request (at);

-- +goose Down
CREATE TABLE owner_request (
    owner   TEXT   NOT NULL,
    root    TEXT   NOT NULL,
    message TEXT   NOT NULL,
    digest  BYTEA,
    id      TEXT   NOT NULL,
    n       BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (owner, root, message)
);
INSERT INTO owner_request (owner, root, message, digest, id, n, at)
SELECT owner, root, message, digest, id, n, at FROM request WHERE true
ON CONFLICT DO NOTHING;
DROP TABLE request;
ALTER TABLE owner_request RENAME TO request;
CREATE INDEX request_id ON request (id);
CREATE INDEX request_at ON request (at);
