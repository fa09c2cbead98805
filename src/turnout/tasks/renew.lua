-- Extends the lease of an attempt that still holds the task's turn. Returns 1 or 0.
-- XCLAIM without JUSTID counts the renewal, which is what the manager watches: no clock is asked.
-- The work since the last sign of life is booked now: on the day on which it was done.
local id, gang, attempt, at_ms, day, usage_ms = unpack(ARGV)
local turn, holder, current, model, tenant =
  unpack(redis.call('HMGET', task_key(id), 'turn', 'gang', 'attempt', 'model', 'tenant'))
if not turn or holder ~= gang or (current or attempt) ~= attempt then return 0 end
book_work(id, tenant, model, at_ms, at_ms, day, usage_ms)
return #redis.call('XCLAIM', queue_key(model), GROUP, gang, 0, turn)
