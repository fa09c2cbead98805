-- Extends the lease of an attempt that still holds the task's turn. Returns 1 or 0.
-- XCLAIM without JUSTID counts the renewal, which is what the manager watches: no clock is asked.
local id, gang, attempt = unpack(ARGV)
local turn, holder, current, model = unpack(redis.call('HMGET', task_key(id), 'turn', 'gang', 'attempt', 'model'))
if not turn or holder ~= gang or (current or attempt) ~= attempt then return 0 end
return #redis.call('XCLAIM', queue_key(model), GROUP, gang, 0, turn)
