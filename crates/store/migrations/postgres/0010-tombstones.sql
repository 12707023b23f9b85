-- Signed statements that the first rows of a chain were archived and removed. Added and never changed.
CREATE TABLE ledger_tombstones (
  writer  TEXT NOT NULL,
  through BIGINT NOT NULL,
  time    BIGINT NOT NULL,
  body    TEXT NOT NULL,
  PRIMARY KEY (writer, through)
);

CREATE TRIGGER tombstones_no_change BEFORE UPDATE OR DELETE ON ledger_tombstones
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tombstones_no_truncate BEFORE TRUNCATE ON ledger_tombstones
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A row goes only behind a tombstone. Whether its signature is good is for verification to say.
CREATE FUNCTION refuse_uncovered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM ledger_tombstones WHERE writer = OLD.writer AND through >= OLD.sequence) THEN
    RAISE EXCEPTION 'rows of the ledger are removed behind a tombstone only' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END
$$;
DROP TRIGGER ledger_no_change ON ledger;
CREATE TRIGGER ledger_no_change BEFORE UPDATE ON ledger
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger
  FOR EACH ROW EXECUTE FUNCTION refuse_uncovered();
