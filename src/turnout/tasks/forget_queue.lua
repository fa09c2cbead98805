-- Removes what is left of a model's queue. Returns 1, or 0 while it has unfinished tasks.
local model = unpack(ARGV)
if redis.call('EXISTS', unfinished_key(model)) == 1 then return 0 end
redis.call('DEL', queue_key(model), bound_key(model))
for _, line in ipairs({model, guests_line(model)}) do
  redis.call('DEL', tenants_key(line), served_key(line), clock_key(line))
end
redis.call('HDEL', paces_key(), model)
redis.call('SREM', queues_key(), model)
return 1
