-- The schema of a store: one text for SQLite and PostgreSQL, with only type names that both take. Times are
-- milliseconds since 1970 unless said otherwise, task.status_at nanoseconds; sum is a CRC-32C.
-- Programs that know schema 1 or later may use the result.

-- +goose Up

-- Tasks as readers list them. account is that of the owner, agent_account the one that has made the agent by the API, ''
-- for an agent of the file. text is the beginning of the message. brief is 1 for tasks that were begun with a brief. snap
-- is the task at its end.
CREATE TABLE task (
    id            TEXT   NOT NULL PRIMARY KEY,
    account       TEXT   NOT NULL,
    owner         TEXT   NOT NULL,
    created       BIGINT NOT NULL,
    text          TEXT   NOT NULL,
    agent         TEXT   NOT NULL,
    agent_account TEXT   NOT NULL,
    context_id    TEXT   NOT NULL,
    state         BIGINT NOT NULL,
    status_at     BIGINT NOT NULL,
    visible       BIGINT NOT NULL,
    brief         BIGINT NOT NULL,
    snap_seq      BIGINT NOT NULL DEFAULT 0,
    snap_sum      BIGINT NOT NULL DEFAULT 0,
    snap          BYTEA
);
CREATE INDEX task_owner ON task (owner, status_at DESC, id DESC);
CREATE INDEX task_agent ON task (owner, agent, status_at DESC, id DESC);
CREATE INDEX task_context ON task (owner, context_id, status_at DESC, id DESC);
CREATE INDEX task_state ON task (owner, state, status_at DESC, id DESC);
CREATE INDEX task_created ON task (account, created DESC, id DESC);
CREATE INDEX task_created_agent ON task (account, agent, created DESC, id DESC);
CREATE INDEX task_created_state ON task (account, state, created DESC, id DESC);
CREATE INDEX task_owner_created ON task (owner, created DESC, id DESC);
CREATE INDEX task_owner_created_agent ON task (owner, agent, created DESC, id DESC);
CREATE INDEX task_owner_created_state ON task (owner, state, created DESC, id DESC);
CREATE INDEX task_brief ON task (owner, id DESC) WHERE brief = 1;
CREATE INDEX task_brief_agent ON task (owner, agent, id DESC) WHERE brief = 1;

-- What tasks have spent, up to the event seq; a task without a row has spent nothing.
CREATE TABLE task_spent (
    id            TEXT   NOT NULL PRIMARY KEY,
    account       TEXT   NOT NULL,
    owner         TEXT   NOT NULL,
    seq           BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cost_micros   BIGINT NOT NULL
);
CREATE INDEX task_spent_cost ON task_spent (account, cost_micros DESC, id DESC);
CREATE INDEX task_spent_owner ON task_spent (owner, cost_micros DESC, id DESC);

-- Runs as the engine claims them. told is the value of due of which the scheduler of another service knows. push is 1 once a run has had a receiver of notifications, halted is 1 while it waits
-- for the end of a halt, and parked says why it is not tried again until somebody has it tried.
CREATE TABLE run (
    id         TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    holder     TEXT,
    epoch      BIGINT NOT NULL DEFAULT 0,
    seq        BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    inputs     BIGINT NOT NULL DEFAULT 0,
    due        BIGINT,
    told       BIGINT,
    ended      BIGINT,
    deltas     BIGINT NOT NULL DEFAULT 0,
    definition TEXT,
    push       BIGINT NOT NULL DEFAULT 0,
    parked     TEXT,
    halted     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX run_due ON run (due) WHERE due IS NOT NULL;
CREATE INDEX run_due_owner ON run (owner, due) WHERE due IS NOT NULL;
CREATE INDEX run_holder ON run (holder) WHERE holder IS NOT NULL;
CREATE INDEX run_open ON run (id) WHERE ended IS NULL;
CREATE INDEX run_ended ON run (ended) WHERE ended IS NOT NULL;
CREATE INDEX run_definition ON run (definition) WHERE definition IS NOT NULL;
CREATE INDEX run_deltas ON run (ended) WHERE ended IS NOT NULL AND deltas > 0;
CREATE INDEX run_parked ON run (parked) WHERE parked IS NOT NULL;
CREATE INDEX run_halted ON run (id) WHERE halted = 1;

-- Processes that share the store. halts is the last change of halts that a replica has applied.
CREATE TABLE replica (
    id      TEXT   NOT NULL PRIMARY KEY,
    expires BIGINT NOT NULL,
    halts   BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE event (
    id    TEXT   NOT NULL,
    seq   BIGINT NOT NULL,
    scope TEXT   NOT NULL,
    delta BIGINT NOT NULL,
    sum   BIGINT NOT NULL,
    body  BYTEA  NOT NULL,
    PRIMARY KEY (id, seq)
);

-- Values of at least 32 KiB in events and snapshots of a run, such as files, each stored once for the run, in pieces.
CREATE TABLE blob (
    id    TEXT   NOT NULL,
    hash  BYTEA  NOT NULL,
    piece BIGINT NOT NULL,
    body  BYTEA  NOT NULL,
    PRIMARY KEY (id, hash, piece)
);

CREATE TABLE inbox (
    id   TEXT   NOT NULL,
    n    BIGINT NOT NULL,
    sum  BIGINT NOT NULL,
    body BYTEA  NOT NULL,
    PRIMARY KEY (id, n)
);

-- What was asked for once: a message of an owner to an agent (root is empty), or a command to a root. agent is empty
-- for keys that this server makes, which have a slash, and for commands.
CREATE TABLE request (
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
CREATE INDEX request_id ON request (id);
CREATE INDEX request_at ON request (at);

CREATE TABLE definition (
    revision TEXT   NOT NULL PRIMARY KEY,
    at       BIGINT NOT NULL,
    body     BYTEA  NOT NULL
);

CREATE TABLE setting (
    name  TEXT  NOT NULL PRIMARY KEY,
    value BYTEA NOT NULL
);

-- Open questions that roles may answer: the event that asks, once for each role.
CREATE TABLE question (
    id      TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    role    TEXT   NOT NULL,
    account TEXT   NOT NULL,
    PRIMARY KEY (id, seq, role)
);
CREATE INDEX question_role ON question (account, role, id, seq);

-- What runs remember of the context they belong to. last is the place of the last
-- entry, used when something was added, in milliseconds since 1970; sum is a CRC-32C.
CREATE TABLE conversation (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    last       BIGINT NOT NULL,
    used       BIGINT NOT NULL,
    PRIMARY KEY (owner, context_id)
);
CREATE INDEX conversation_used ON conversation (used);

CREATE TABLE history (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    path       TEXT   NOT NULL,
    n          BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    sum        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (owner, context_id, path, n)
);
CREATE INDEX history_task ON history (owner, context_id, task);

-- Large entries of history in pieces, each stored once for its path: body in history is then a byte 0 and their hash.
CREATE TABLE history_piece (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    path       TEXT   NOT NULL,
    hash       BYTEA  NOT NULL,
    piece      BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (owner, context_id, path, hash, piece)
);

-- The whole state of a path from a place on.
CREATE TABLE conversation_state (
    owner      TEXT   NOT NULL,
    context_id TEXT   NOT NULL,
    path       TEXT   NOT NULL,
    n          BIGINT NOT NULL,
    sum        BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    PRIMARY KEY (owner, context_id, path, n)
);

-- Receivers that are told about tasks. seen is the sequence of the last event that
-- was dealt with, part how many notifications of the next one were; due is when
-- somebody shall look, and while somebody does, when that claim lapses; NULL is
-- when something happens. body is sealed; version is that of the protocol, empty the
-- present one.
CREATE TABLE push_config (
    id      TEXT   NOT NULL,
    scope   TEXT   NOT NULL,
    config  TEXT   NOT NULL,
    owner   TEXT   NOT NULL,
    body    BYTEA  NOT NULL,
    version TEXT   NOT NULL DEFAULT '',
    epoch   BIGINT NOT NULL DEFAULT 0,
    due     BIGINT,
    held    BIGINT NOT NULL DEFAULT 0,
    seen    BIGINT NOT NULL,
    part    BIGINT NOT NULL DEFAULT 0,
    tries   BIGINT NOT NULL DEFAULT 0,
    since   BIGINT NOT NULL DEFAULT 0,
    failing BIGINT NOT NULL DEFAULT 0,
    ended   BIGINT NOT NULL DEFAULT 0,
    error   TEXT   NOT NULL DEFAULT '',
    PRIMARY KEY (id, scope, config)
);
CREATE INDEX push_due ON push_config (due) WHERE due IS NOT NULL;
CREATE INDEX push_owner ON push_config (owner) WHERE ended = 0;

CREATE TABLE push_dead (
    id     TEXT   NOT NULL,
    scope  TEXT   NOT NULL,
    config TEXT   NOT NULL,
    seq    BIGINT NOT NULL,
    part   BIGINT NOT NULL,
    tries  BIGINT NOT NULL,
    error  TEXT   NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (id, scope, config, seq, part)
);

-- Agents and teams that are not in the server's file. catalog_version counts the
-- changes, and names the last one; an entry has the count of the one that put it.
-- account is the account to which an entry belongs.
CREATE TABLE catalog (
    id         TEXT   NOT NULL PRIMARY KEY,
    version    BIGINT NOT NULL,
    created    BIGINT NOT NULL,
    changed    BIGINT NOT NULL,
    changed_by TEXT   NOT NULL,
    account    TEXT   NOT NULL,
    body       BYTEA  NOT NULL
);
CREATE TABLE catalog_version (
    one     BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    change  TEXT   NOT NULL
);
INSERT INTO catalog_version (one, version, change) VALUES (1, 0, '');

-- Collaborations that have not ended: each has one of the places of its team.
CREATE TABLE collaboration_slot (
    team TEXT   NOT NULL,
    slot BIGINT NOT NULL,
    id   TEXT   NOT NULL,
    PRIMARY KEY (team, slot)
);
CREATE INDEX collaboration_slot_id ON collaboration_slot (id);

-- The boards of teams. Each change raises board.seq, in the transaction that makes
-- it; op makes it unique. n is the place of an item in the order in which they were
-- added, state and assignee are as they were put: with a lease that is over, in
-- milliseconds since 1970, an item can be claimed. recipient is NULL where an event
-- is no message, and empty where it is for all. sum is a CRC-32C.
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

-- What runs hold and have spent of what their account may spend, by day; the sums of that by
-- account, where the row of day '' has what is in flight; and limits that were set by the API.
CREATE TABLE account_use (
    root          TEXT   NOT NULL,
    day           TEXT   NOT NULL,
    account       TEXT   NOT NULL,
    epoch         BIGINT NOT NULL,
    held_tokens   BIGINT NOT NULL,
    held_micros   BIGINT NOT NULL,
    spent_tokens  BIGINT NOT NULL,
    spent_micros  BIGINT NOT NULL,
    before_tokens BIGINT NOT NULL,
    before_micros BIGINT NOT NULL,
    PRIMARY KEY (root, day)
);
CREATE INDEX account_use_held ON account_use (root) WHERE held_tokens > 0 OR held_micros > 0;

CREATE TABLE account_day (
    account      TEXT   NOT NULL,
    day          TEXT   NOT NULL,
    held_tokens  BIGINT NOT NULL,
    held_micros  BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    spent_micros BIGINT NOT NULL,
    PRIMARY KEY (account, day)
);

CREATE TABLE account_limits (
    account    TEXT   NOT NULL PRIMARY KEY,
    changed    BIGINT NOT NULL,
    changed_by TEXT   NOT NULL,
    body       BYTEA  NOT NULL
);

-- What runs hold and have spent of the budgets that the runs of a message share: task is the root task of the run
-- that has the limit, and scope the one in which it applies there. The row of that run is the one that is locked.
CREATE TABLE shared_use (
    task         TEXT   NOT NULL,
    scope        TEXT   NOT NULL,
    run          TEXT   NOT NULL,
    epoch        BIGINT NOT NULL,
    held_tokens  BIGINT NOT NULL,
    held_micros  BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    spent_micros BIGINT NOT NULL,
    PRIMARY KEY (task, scope, run)
);

-- Halts: what no work begins for. halt_version counts the changes, and halt_task has what each halt has stopped.
CREATE TABLE halt (
    kind    BIGINT NOT NULL,
    name    TEXT   NOT NULL,
    version BIGINT NOT NULL,
    body    BYTEA  NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE TABLE halt_version (
    one     BIGINT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO halt_version (one, version) VALUES (1, 0);
CREATE TABLE halt_task (
    version BIGINT NOT NULL,
    id      TEXT   NOT NULL,
    owner   TEXT   NOT NULL,
    PRIMARY KEY (version, id)
);

-- Costs: what runs have spent by hour, account, agent, team and model. The rows with root '' are the sums of
-- runs that have ended, which stay when these are deleted; the others belong to a run. seq is the
-- sequence number of the run up to which its events are included.
CREATE TABLE cost (
    root                    TEXT   NOT NULL,
    hour                    BIGINT NOT NULL,
    account                 TEXT   NOT NULL,
    path                    TEXT   NOT NULL,
    team                    TEXT   NOT NULL,
    model                   TEXT   NOT NULL,
    seq                     BIGINT NOT NULL,
    input_tokens            BIGINT NOT NULL,
    output_tokens           BIGINT NOT NULL,
    cost_micros             BIGINT NOT NULL,
    model_calls             BIGINT NOT NULL,
    tool_calls              BIGINT NOT NULL,
    cached_input_tokens     BIGINT NOT NULL,
    cache_write_tokens      BIGINT NOT NULL,
    reasoning_tokens        BIGINT NOT NULL,
    estimated_input_tokens  BIGINT NOT NULL,
    estimated_output_tokens BIGINT NOT NULL,
    estimated_cost_micros   BIGINT NOT NULL,
    claimed_input_tokens    BIGINT NOT NULL,
    claimed_output_tokens   BIGINT NOT NULL,
    claimed_cost_micros     BIGINT NOT NULL,
    PRIMARY KEY (root, hour, account, path, team, model)
);
CREATE INDEX cost_hour ON cost (hour);
CREATE INDEX cost_account ON cost (account, hour);

-- API keys that were made by the API: their hashes, and what they say of their owners.
CREATE TABLE api_key (
    id   TEXT  NOT NULL PRIMARY KEY,
    hash BYTEA NOT NULL,
    body BYTEA NOT NULL
);

-- Audit records, in one chain for each account. audit_head has the last record of each chain.
-- dropped and dropped_hash are of the last record of a chain that is no longer stored.
CREATE TABLE audit (
    account TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    id      TEXT   NOT NULL,
    hash    BYTEA  NOT NULL,
    body    BYTEA  NOT NULL,
    PRIMARY KEY (account, seq)
);
CREATE UNIQUE INDEX audit_id ON audit (account, id);
CREATE TABLE audit_head (
    account      TEXT   NOT NULL PRIMARY KEY,
    seq          BIGINT NOT NULL,
    hash         BYTEA  NOT NULL,
    dropped      BIGINT NOT NULL DEFAULT 0,
    dropped_hash BYTEA
);

-- The requests of accounts and principals, which replicas count together: when the bucket of each is full
-- again, in microseconds. Without a row it is full.
CREATE TABLE request_rate (
    owner   TEXT   NOT NULL PRIMARY KEY,
    full_at BIGINT NOT NULL
);

-- Until when owners of tokens and certificates may call, in Unix seconds: for each, the latest of those that were
-- accepted, by who has signed it. issuer begins with "certificate " for certificates.
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
DROP TABLE request_rate;
DROP TABLE audit_head;
DROP TABLE audit;
DROP TABLE api_key;
DROP TABLE cost;
DROP TABLE halt_task;
DROP TABLE halt_version;
DROP TABLE halt;
DROP TABLE shared_use;
DROP TABLE account_limits;
DROP TABLE account_day;
DROP TABLE account_use;
DROP TABLE board_read;
DROP TABLE board_event;
DROP TABLE work_item_need;
DROP TABLE work_item;
DROP TABLE board;
DROP TABLE collaboration_slot;
DROP TABLE catalog_version;
DROP TABLE catalog;
DROP TABLE push_dead;
DROP TABLE push_config;
DROP TABLE conversation_state;
DROP TABLE history_piece;
DROP TABLE history;
DROP TABLE conversation;
DROP TABLE question;
DROP TABLE setting;
DROP TABLE definition;
DROP TABLE request;
DROP TABLE inbox;
DROP TABLE blob;
DROP TABLE event;
DROP TABLE replica;
DROP TABLE run;
DROP TABLE task_spent;
DROP TABLE task;
