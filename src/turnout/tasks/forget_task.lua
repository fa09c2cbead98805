-- Removes an ended task and its events, and tells whoever tails all events. Returns 1, or 0 when its state is another.
local id, tenant, state, event = unpack(ARGV)
if redis.call('HGET', task_key(id), 'state') ~= state then return 0 end
record(id, tenant, event, 1)
redis.call('DEL', task_key(id), task_events_key(id), webhook_tries_key(id))
redis.call('ZREM', tasks_of_key(tenant), id)
redis.call('ZREM', outbox_key(), id)
return 1
