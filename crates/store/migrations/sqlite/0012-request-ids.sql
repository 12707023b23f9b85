-- The request a row belongs to. Rows written before have it in their detail, and their hashes stay as they are: a member without a value
-- is not part of the hashed text.
ALTER TABLE ledger ADD COLUMN request_id TEXT;
CREATE INDEX ledger_request ON ledger (request_id, position, writer) WHERE request_id IS NOT NULL;
-- A filter by request id searches the detail of these rows only.
CREATE INDEX ledger_version_1 ON ledger (version) WHERE version = 1;
