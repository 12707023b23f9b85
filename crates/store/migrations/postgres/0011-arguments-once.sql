-- Rows of one call repeat its arguments: the first holds them, and a later one of the same chain names that row's sequence instead.
-- What is hashed, shown and exported is the arguments themselves, so the hash of each row covers them as before.
ALTER TABLE ledger ADD COLUMN arguments_from BIGINT;
CREATE INDEX ledger_arguments_from ON ledger (writer, arguments_from) WHERE arguments_from IS NOT NULL;
