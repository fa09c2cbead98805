-- Extends the lease of a gang that still holds the task's turn. Returns 1 or 0.
local id, gang = unpack(ARGV)
local turn, holder, model = unpack(redis.call('HMGET', task_key(id), 'turn', 'gang', 'model'))
if not turn or holder ~= gang then return 0 end
return #redis.call('XCLAIM', queue_key(model), GROUP, gang, 0, turn, 'JUSTID')
