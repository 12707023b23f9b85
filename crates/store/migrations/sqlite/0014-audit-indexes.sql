-- Seed 002's indexes of `audit_log`, by their names. The audit log is a view of the ledger, so they are indexes of the ledger's rows that it
-- shows. Rows come into it with the ledger's, written by the product; nobody else adds, changes or removes one.
CREATE INDEX idx_audit_action ON ledger (json_extract(detail, '$.action'))
  WHERE kind IN ('approval', 'memory');
CREATE INDEX idx_audit_entity ON ledger
  (COALESCE(json_extract(detail, '$.entity_type'), 'plan'), COALESCE(json_extract(detail, '$.entity_id'), plan_id))
  WHERE kind IN ('approval', 'memory');
CREATE INDEX idx_audit_created ON ledger (time) WHERE kind IN ('approval', 'memory');

CREATE TRIGGER audit_log_no_insert INSTEAD OF INSERT ON audit_log
  BEGIN SELECT RAISE(ABORT, 'rows of the audit log are written by countersign only'); END;
CREATE TRIGGER audit_log_no_update INSTEAD OF UPDATE ON audit_log
  BEGIN SELECT RAISE(ABORT, 'rows of the audit log are never changed'); END;
CREATE TRIGGER audit_log_no_delete INSTEAD OF DELETE ON audit_log
  BEGIN SELECT RAISE(ABORT, 'rows of the audit log are never removed'); END;
