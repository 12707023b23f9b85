-- The records. Times are microseconds since 1970; digests lower-case hex; JSON is kept as text.

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- Every key that ever signed a checkpoint of this store.
CREATE TABLE signing_keys (
  public_key TEXT PRIMARY KEY,
  created    BIGINT NOT NULL
);

-- One chain per writer. A row's hash covers every column but itself.
CREATE TABLE ledger (
  writer             TEXT NOT NULL,
  sequence           BIGINT NOT NULL,
  version            BIGINT NOT NULL,
  id                 TEXT NOT NULL UNIQUE,
  time               BIGINT NOT NULL,
  kind               TEXT NOT NULL,
  principal          TEXT,
  role               TEXT,
  session            TEXT,
  source             TEXT,
  upstream           TEXT,
  tool               TEXT,
  variant            TEXT,
  effect             TEXT,
  mode               TEXT,
  intent_type        TEXT,
  intent_sensitivity TEXT,
  intent_reason      TEXT,
  arguments          TEXT,
  arguments_digest   TEXT,
  plan_id            TEXT,
  plan_hash          TEXT,
  approval           TEXT,
  status             TEXT NOT NULL,
  code               TEXT,
  duration_us        BIGINT,
  result_digest      TEXT,
  detail             TEXT,
  prev_hash          TEXT NOT NULL,
  hash               TEXT NOT NULL,
  PRIMARY KEY (writer, sequence)
);
-- Ids sort by time: each index ends with the id, so that a filtered page is one walk from the newest.
CREATE INDEX ledger_kind ON ledger (kind, id);
CREATE INDEX ledger_status ON ledger (status, id);
CREATE INDEX ledger_upstream ON ledger (upstream, id) WHERE upstream IS NOT NULL;
CREATE INDEX ledger_tool ON ledger (tool, id) WHERE tool IS NOT NULL;
CREATE INDEX ledger_intent ON ledger (intent_type, id) WHERE intent_type IS NOT NULL;
CREATE INDEX ledger_session ON ledger (session, id) WHERE session IS NOT NULL;
CREATE INDEX ledger_principal ON ledger (principal, id) WHERE principal IS NOT NULL;
CREATE INDEX ledger_plan ON ledger (plan_id, id) WHERE plan_id IS NOT NULL;
CREATE INDEX ledger_code ON ledger (code, id) WHERE code IS NOT NULL;

-- The end of each chain, and the latest moment its writer has seen.
CREATE TABLE ledger_heads (
  writer   TEXT PRIMARY KEY,
  sequence BIGINT NOT NULL,
  hash     TEXT NOT NULL,
  clock    BIGINT NOT NULL
);

CREATE TABLE checkpoints (
  id     TEXT PRIMARY KEY,
  writer TEXT NOT NULL,
  time   BIGINT NOT NULL,
  body   TEXT NOT NULL
);

CREATE TABLE principals (
  principal TEXT PRIMARY KEY,
  paused    BIGINT,
  resumed   BIGINT
);

CREATE TABLE plans (
  plan_id      TEXT PRIMARY KEY,
  hash         TEXT NOT NULL,
  principal    TEXT NOT NULL,
  session      TEXT NOT NULL,
  tool         TEXT NOT NULL,
  effect       TEXT NOT NULL,
  strength     BIGINT NOT NULL,
  state        TEXT NOT NULL,
  created      BIGINT NOT NULL,
  expires      BIGINT NOT NULL,
  decided      BIGINT,
  approval     TEXT,
  note         TEXT,
  ledger_id    TEXT,
  code         TEXT,
  result       TEXT,
  result_bytes BIGINT,
  ended        BIGINT,
  body         TEXT NOT NULL
);
-- At most one open plan per hash: an equal call joins it.
CREATE UNIQUE INDEX plans_open ON plans (hash) WHERE state IN ('pending', 'approved');
CREATE INDEX plans_state ON plans (state, expires);
CREATE INDEX plans_principal ON plans (principal, state, decided);
CREATE INDEX plans_tool ON plans (tool, state);

-- Tokens are kept as digests.
CREATE TABLE tokens (
  token   TEXT PRIMARY KEY,
  plan_id TEXT NOT NULL REFERENCES plans (plan_id),
  expires BIGINT NOT NULL
);
CREATE INDEX tokens_plan ON tokens (plan_id);

-- Calls that were let out and have not come back. `instance` is the process that sent them.
CREATE TABLE in_flight (
  ledger_id TEXT PRIMARY KEY,
  plan_id   TEXT,
  instance  TEXT NOT NULL,
  opened    BIGINT NOT NULL
);

CREATE TABLE grants (
  grant_id  TEXT PRIMARY KEY,
  principal TEXT NOT NULL,
  tool      TEXT NOT NULL,
  uses_left BIGINT NOT NULL,
  expires   BIGINT NOT NULL,
  created   BIGINT NOT NULL,
  revoked   BIGINT,
  last_used BIGINT,
  body      TEXT NOT NULL
);
CREATE INDEX grants_covering ON grants (principal, tool);

-- Secrets are kept as digests.
CREATE TABLE credentials (
  credential_id TEXT PRIMARY KEY,
  secret        TEXT NOT NULL UNIQUE,
  role          TEXT NOT NULL,
  name          TEXT NOT NULL,
  scopes        TEXT NOT NULL,
  created       BIGINT NOT NULL,
  expires       BIGINT,
  revoked       BIGINT
);

-- A mode is never shared between principals.
CREATE TABLE sessions (
  principal TEXT NOT NULL,
  session   TEXT NOT NULL,
  mode      TEXT,
  created   BIGINT NOT NULL,
  last_seen BIGINT NOT NULL,
  PRIMARY KEY (principal, session)
);

CREATE TABLE pins (
  upstream              TEXT NOT NULL,
  tool                  TEXT NOT NULL,
  state                 TEXT NOT NULL,
  fingerprint           TEXT NOT NULL,
  definition            TEXT NOT NULL,
  candidate_fingerprint TEXT,
  candidate_definition  TEXT,
  first_seen            BIGINT NOT NULL,
  changed               BIGINT NOT NULL,
  decided               BIGINT,
  decided_by            TEXT,
  PRIMARY KEY (upstream, tool)
);

CREATE TABLE runs (
  run_id    TEXT PRIMARY KEY,
  principal TEXT NOT NULL,
  session   TEXT NOT NULL,
  tool      TEXT NOT NULL,
  state     TEXT NOT NULL,
  instance  TEXT NOT NULL,
  ledger_id TEXT,
  started   BIGINT NOT NULL,
  ended     BIGINT,
  exit_code BIGINT,
  log_tail  TEXT NOT NULL
);
CREATE INDEX runs_principal ON runs (principal, run_id);
CREATE INDEX runs_open ON runs (instance) WHERE state IN ('queued', 'running');

-- Seed 002's view of who decided what.
CREATE VIEW audit_log AS
  SELECT id,
         json_extract(detail, '$.action') AS action,
         role AS actor_type,
         COALESCE(json_extract(detail, '$.actor_id'), principal) AS actor_id,
         COALESCE(json_extract(detail, '$.entity_type'), 'plan') AS entity_type,
         COALESCE(json_extract(detail, '$.entity_id'), plan_id) AS entity_id,
         detail AS metadata,
         strftime('%Y-%m-%dT%H:%M:%fZ', time / 1000000.0, 'unixepoch') AS created_at
    FROM ledger
   WHERE kind IN ('approval', 'memory')
     AND json_extract(detail, '$.action') IN ('approve', 'reject', 'direct_write');
