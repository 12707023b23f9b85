-- Until when the call that asked for a pending plan is held open; none where no call waits.
ALTER TABLE plans ADD COLUMN held_until BIGINT;
