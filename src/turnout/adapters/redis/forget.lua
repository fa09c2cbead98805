-- Removes an ended task and its story. Returns 1, or 0 when it has not ended.
local id, tenant, state = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', task_key(id), 'state') ~= state then return 0 end
redis.call('DEL', task_key(id), story_key(id), P .. ':webhook:' .. id)
redis.call('ZREM', P .. ':of:' .. tenant, id)
redis.call('ZREM', OUTBOX, id)
return 1
