-- Definitions of a tool that were accepted at some time, a few for each tool. Those of the set (`in_set` = 1) count as accepted
-- whenever the upstream lists them. `accepted_by` is empty for a definition that was trusted at first sight.
CREATE TABLE known_definitions (
  upstream    TEXT NOT NULL,
  tool        TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  definition  TEXT NOT NULL,
  accepted    BIGINT NOT NULL,
  accepted_by TEXT,
  in_set      BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (upstream, tool, fingerprint)
);
