-- Listings follow the chain. `position` grows by at least one with each row of a writer and never stands before the row's own
-- time: max(time, position of the row before + 1). It is not hashed, because it follows from what is; verification computes it again.
ALTER TABLE ledger ADD COLUMN position BIGINT NOT NULL DEFAULT 0;
UPDATE ledger SET position = placed.position
  FROM (SELECT writer, sequence,
               sequence + MAX(time - sequence) OVER (PARTITION BY writer ORDER BY sequence) AS position
          FROM ledger) AS placed
 WHERE placed.writer = ledger.writer AND placed.sequence = ledger.sequence;

-- Each index ends with the place in the listing, so that a filtered page is one walk from the newest.
DROP INDEX ledger_kind;
DROP INDEX ledger_status;
DROP INDEX ledger_upstream;
DROP INDEX ledger_tool;
DROP INDEX ledger_intent;
DROP INDEX ledger_session;
DROP INDEX ledger_principal;
DROP INDEX ledger_plan;
DROP INDEX ledger_code;
DROP INDEX ledger_role;
CREATE UNIQUE INDEX ledger_position ON ledger (position, writer);
CREATE INDEX ledger_kind ON ledger (kind, position, writer);
CREATE INDEX ledger_status ON ledger (status, position, writer);
CREATE INDEX ledger_upstream ON ledger (upstream, position, writer) WHERE upstream IS NOT NULL;
CREATE INDEX ledger_tool ON ledger (tool, position, writer) WHERE tool IS NOT NULL;
CREATE INDEX ledger_intent ON ledger (intent_type, position, writer) WHERE intent_type IS NOT NULL;
CREATE INDEX ledger_session ON ledger (session, position, writer) WHERE session IS NOT NULL;
CREATE INDEX ledger_principal ON ledger (principal, position, writer) WHERE principal IS NOT NULL;
CREATE INDEX ledger_plan ON ledger (plan_id, position, writer) WHERE plan_id IS NOT NULL;
CREATE INDEX ledger_code ON ledger (code, position, writer) WHERE code IS NOT NULL;
CREATE INDEX ledger_role ON ledger (role, position, writer) WHERE role IS NOT NULL;
-- Rows written while the clock stood back by more than an hour: a page that ends at a time looks for them beyond it.
CREATE INDEX ledger_stepped ON ledger (position) WHERE position - time > 3600000000;

-- Rows of the ledger and checkpoints are added and never changed. A program that goes past the store has to remove these first.
CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger
  BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never changed'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger
  BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never removed'); END;
-- `INSERT OR REPLACE` removes without a delete.
CREATE TRIGGER ledger_no_replace BEFORE INSERT ON ledger
  WHEN EXISTS (SELECT 1 FROM ledger WHERE writer = NEW.writer AND sequence = NEW.sequence)
    OR EXISTS (SELECT 1 FROM ledger WHERE id = NEW.id)
  BEGIN SELECT RAISE(ABORT, 'rows of the ledger are never replaced'); END;
CREATE TRIGGER checkpoints_no_update BEFORE UPDATE ON checkpoints
  BEGIN SELECT RAISE(ABORT, 'checkpoints are never changed'); END;
CREATE TRIGGER checkpoints_no_delete BEFORE DELETE ON checkpoints
  BEGIN SELECT RAISE(ABORT, 'checkpoints are never removed'); END;
CREATE TRIGGER checkpoints_no_replace BEFORE INSERT ON checkpoints
  WHEN EXISTS (SELECT 1 FROM checkpoints WHERE id = NEW.id)
  BEGIN SELECT RAISE(ABORT, 'checkpoints are never replaced'); END;
