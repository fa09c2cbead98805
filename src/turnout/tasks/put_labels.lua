-- Writes what its owner says of a task beside it, so that it goes with it. Returns 1, or 0 if the task is gone.
local id, doc = unpack(ARGV)
if redis.call('HEXISTS', task_key(id), 'doc') == 0 then return 0 end
redis.call('HSET', task_key(id), 'labels', doc)
return 1
