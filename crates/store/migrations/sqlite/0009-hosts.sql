-- The program on the other end of the connection, as JSON `{program, version, folder}`. Rows written before have none, and their
-- hashes stay as they are: a member without a value is not part of the hashed text.
ALTER TABLE ledger ADD COLUMN host TEXT;
