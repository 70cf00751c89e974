-- brief is 1 for tasks that were begun with a brief, and for those that an earlier version
-- made: whether they were is in their first event.
-- Programs that know schema 11 or later may use the result.

-- +goose Up
ALTER TABLE task ADD COLUMN brief BIGINT NOT NULL DEFAULT 1;
CREATE INDEX task_brief ON task (owner, id DESC) WHERE brief = 1;
CREATE INDEX task_brief_agent ON task (owner, agent, id DESC) WHERE brief = 1;

-- +goose Down
DROP INDEX task_brief_agent;
DROP INDEX task_brief;
ALTER TABLE task DROP COLUMN brief;
