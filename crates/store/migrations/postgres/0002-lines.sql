-- HTTP sessions as the wire needs them back after a restart.
CREATE TABLE lines (
  session   TEXT PRIMARY KEY,
  owner     TEXT NOT NULL,
  saved     TEXT NOT NULL,
  last_seen BIGINT NOT NULL
);
