-- Seed 002's indexes of `audit_log`, by their names. The audit log is a view of the ledger, so they are indexes of the ledger's rows that it
-- shows. Rows come into it with the ledger's, written by the product; nobody else adds, changes or removes one.
CREATE INDEX idx_audit_action ON ledger ((CAST(detail AS JSON) ->> 'action'))
  WHERE kind IN ('approval', 'memory');
CREATE INDEX idx_audit_entity ON ledger
  ((COALESCE(CAST(detail AS JSON) ->> 'entity_type', 'plan')), (COALESCE(CAST(detail AS JSON) ->> 'entity_id', plan_id)))
  WHERE kind IN ('approval', 'memory');
CREATE INDEX idx_audit_created ON ledger (time) WHERE kind IN ('approval', 'memory');

CREATE FUNCTION refuse_audit_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of the audit log are written by countersign only' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER audit_log_no_write INSTEAD OF INSERT OR UPDATE OR DELETE ON audit_log
  FOR EACH ROW EXECUTE FUNCTION refuse_audit_write();
