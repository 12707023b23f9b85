-- The governed memory. Free text is kept reversibly: U+0000, which PostgreSQL has no room for, as U+FDD0 and a sign.
-- `words` are the search terms, made by the program so that both databases find the same; `scope_key` is short
-- whatever the path, because an index has a limit.

CREATE TABLE memory_proposals (
  seq          INTEGER PRIMARY KEY,
  id           TEXT NOT NULL UNIQUE,
  proposed_as  TEXT NOT NULL,
  content      TEXT NOT NULL,
  rationale    TEXT NOT NULL,
  context      TEXT NOT NULL,
  tags         TEXT NOT NULL,
  scope        TEXT NOT NULL,
  scope_path   TEXT NOT NULL,
  source       TEXT NOT NULL,
  principal    TEXT NOT NULL,
  session_id   TEXT NOT NULL,
  agent_type   TEXT NOT NULL,
  evidence     TEXT NOT NULL,
  confidence   BIGINT NOT NULL,
  signals      TEXT NOT NULL,
  dedupe_key   TEXT NOT NULL,
  status       TEXT NOT NULL,
  reviewed_by  TEXT,
  reviewed_at  BIGINT,
  review_note  TEXT,
  promoted_to  TEXT,
  reworded     TEXT,
  created      BIGINT NOT NULL,
  expires      BIGINT NOT NULL,
  words        TEXT NOT NULL
);
-- Of equal texts one at a time waits for a person; what was decided before is no obstacle.
CREATE UNIQUE INDEX memory_proposals_pending ON memory_proposals (dedupe_key) WHERE status = 'pending';
CREATE INDEX memory_proposals_before ON memory_proposals (dedupe_key, seq);
CREATE INDEX memory_proposals_status ON memory_proposals (status, seq);
CREATE INDEX memory_proposals_expiry ON memory_proposals (expires) WHERE status = 'pending';

CREATE TABLE memory_records (
  seq          INTEGER PRIMARY KEY,
  id           TEXT NOT NULL UNIQUE,
  kind         TEXT NOT NULL,
  content      TEXT NOT NULL,
  rationale    TEXT NOT NULL,
  context      TEXT NOT NULL,
  tags         TEXT NOT NULL,
  scope        TEXT NOT NULL,
  scope_path   TEXT NOT NULL,
  scope_key    TEXT NOT NULL,
  authority    TEXT,
  status       TEXT NOT NULL,
  outcome      TEXT NOT NULL,
  outcome_note TEXT NOT NULL,
  outcome_at   BIGINT,
  confidence   BIGINT NOT NULL,
  source       TEXT NOT NULL,
  principal    TEXT NOT NULL,
  session_id   TEXT NOT NULL,
  proposal_id  TEXT NOT NULL,
  dedupe_key   TEXT NOT NULL,
  created      BIGINT NOT NULL,
  updated      BIGINT NOT NULL,
  words        TEXT NOT NULL
);
CREATE INDEX memory_records_place ON memory_records (scope_key, kind, seq);
CREATE INDEX memory_records_kind ON memory_records (kind, seq);
CREATE INDEX memory_records_equal ON memory_records (dedupe_key);

CREATE TABLE memory_links (
  id        TEXT PRIMARY KEY,
  source_id TEXT NOT NULL REFERENCES memory_records (id),
  target_id TEXT NOT NULL REFERENCES memory_records (id),
  relation  TEXT NOT NULL,
  principal TEXT NOT NULL,
  created   BIGINT NOT NULL,
  UNIQUE (source_id, target_id, relation)
);
CREATE INDEX memory_links_target ON memory_links (target_id);

CREATE TABLE memory_sessions (
  id         TEXT PRIMARY KEY,
  principal  TEXT NOT NULL,
  agent_type TEXT NOT NULL,
  agent_id   TEXT NOT NULL,
  goal       TEXT NOT NULL,
  started    BIGINT NOT NULL,
  last_seen  BIGINT NOT NULL,
  ended      BIGINT,
  outcome    TEXT,
  summary    TEXT NOT NULL
);
CREATE INDEX memory_sessions_open ON memory_sessions (last_seen) WHERE ended IS NULL;

CREATE TABLE memory_touches (
  seq        INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES memory_sessions (id),
  kind       TEXT NOT NULL,
  target     TEXT NOT NULL,
  target_key TEXT NOT NULL,
  outcome    TEXT NOT NULL,
  details    TEXT NOT NULL,
  at         BIGINT NOT NULL
);
CREATE INDEX memory_touches_target ON memory_touches (target_key, seq);
CREATE INDEX memory_touches_session ON memory_touches (session_id, seq);

CREATE VIRTUAL TABLE memory_proposals_text USING fts5(
  words, content = 'memory_proposals', content_rowid = 'seq', tokenize = "ascii tokenchars '_'", detail = none, columnsize = 0);
CREATE TRIGGER memory_proposals_added AFTER INSERT ON memory_proposals BEGIN
  INSERT INTO memory_proposals_text (rowid, words) VALUES (new.seq, new.words);
END;
CREATE TRIGGER memory_proposals_removed AFTER DELETE ON memory_proposals BEGIN
  INSERT INTO memory_proposals_text (memory_proposals_text, rowid, words) VALUES ('delete', old.seq, old.words);
END;

CREATE VIRTUAL TABLE memory_records_text USING fts5(
  words, content = 'memory_records', content_rowid = 'seq', tokenize = "ascii tokenchars '_'", detail = none, columnsize = 0);
CREATE TRIGGER memory_records_added AFTER INSERT ON memory_records BEGIN
  INSERT INTO memory_records_text (rowid, words) VALUES (new.seq, new.words);
END;
CREATE TRIGGER memory_records_removed AFTER DELETE ON memory_records BEGIN
  INSERT INTO memory_records_text (memory_records_text, rowid, words) VALUES ('delete', old.seq, old.words);
END;
