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

-- Rows of the ledger and checkpoints are added and never changed. The role that owns the tables could remove these triggers; the
-- gateway needs no such role (docs/guide/replicas.md).
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER ledger_no_change BEFORE UPDATE OR DELETE ON ledger
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_no_truncate BEFORE TRUNCATE ON ledger
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER checkpoints_no_change BEFORE UPDATE OR DELETE ON checkpoints
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER checkpoints_no_truncate BEFORE TRUNCATE ON checkpoints
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
