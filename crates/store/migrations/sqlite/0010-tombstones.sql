-- Signed statements that the first rows of a chain were archived and removed. Added and never changed.
CREATE TABLE ledger_tombstones (
  writer  TEXT NOT NULL,
  through BIGINT NOT NULL,
  time    BIGINT NOT NULL,
  body    TEXT NOT NULL,
  PRIMARY KEY (writer, through)
);

CREATE TRIGGER tombstones_no_update BEFORE UPDATE ON ledger_tombstones
  BEGIN SELECT RAISE(ABORT, 'tombstones are never changed'); END;
CREATE TRIGGER tombstones_no_delete BEFORE DELETE ON ledger_tombstones
  BEGIN SELECT RAISE(ABORT, 'tombstones are never removed'); END;
CREATE TRIGGER tombstones_no_replace BEFORE INSERT ON ledger_tombstones
  WHEN EXISTS (SELECT 1 FROM ledger_tombstones WHERE writer = NEW.writer AND through >= NEW.through)
  BEGIN SELECT RAISE(ABORT, 'tombstones are never replaced'); END;

-- A row goes only behind a tombstone. Whether its signature is good is for verification to say.
DROP TRIGGER ledger_no_delete;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger
  WHEN NOT EXISTS (SELECT 1 FROM ledger_tombstones WHERE writer = OLD.writer AND through >= OLD.sequence)
  BEGIN SELECT RAISE(ABORT, 'rows of the ledger are removed behind a tombstone only'); END;
