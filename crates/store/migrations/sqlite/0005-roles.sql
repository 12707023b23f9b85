-- Rows of people are few among those of agents: found without reading the others.
CREATE INDEX ledger_role ON ledger (role, id) WHERE role IS NOT NULL;
