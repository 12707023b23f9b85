-- Signing in at the desk. Codes and sessions are kept as digests; a code works once, for a minute.
CREATE TABLE desk_codes (
  code          TEXT PRIMARY KEY,
  credential_id TEXT NOT NULL REFERENCES credentials (credential_id),
  expires       BIGINT NOT NULL,
  used          BIGINT
);

CREATE TABLE desk_sessions (
  session       TEXT PRIMARY KEY,
  credential_id TEXT NOT NULL REFERENCES credentials (credential_id),
  created       BIGINT NOT NULL,
  expires       BIGINT NOT NULL,
  ended         BIGINT
);

-- A pass phrase as Argon2id keeps it, for people who set one.
CREATE TABLE desk_phrases (
  credential_id TEXT PRIMARY KEY REFERENCES credentials (credential_id),
  hash          TEXT NOT NULL,
  changed       BIGINT NOT NULL
);

-- What changed since the last approval of a tool, without reading every plan of it.
CREATE INDEX plans_approved ON plans (tool, plan_id) WHERE approval IS NOT NULL;
-- Pages of one state, newest first.
CREATE INDEX plans_page ON plans (state, plan_id);
