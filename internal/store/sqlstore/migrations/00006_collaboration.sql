-- Collaborations that have not ended: each has one of the places of its team.
-- Programs that know schema 6 or later may use the result.

-- +goose Up
CREATE TABLE collaboration_slot (
    team TEXT   NOT NULL,
    slot BIGINT NOT NULL,
    id   TEXT   NOT NULL,
    PRIMARY KEY (team, slot)
);
CREATE INDEX collaboration_slot_id ON collaboration_slot (id);

-- +goose Down
DROP TABLE collaboration_slot;
