-- Removes what is left of a model's queue. Returns 1, or 0 while it has unfinished tasks.
local model = unpack(ARGV)
if redis.call('EXISTS', unfinished_key(model)) == 1 then return 0 end
redis.call('DEL', queue_key(model), tenants_key(model), served_key(model), clock_key(model), bound_key(model))
redis.call('HDEL', paces_key(), model)
redis.call('SREM', queues_key(), model)
return 1
