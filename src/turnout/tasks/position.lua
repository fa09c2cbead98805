-- Where a task is in line.
local model, tenant, id = unpack(ARGV)
return line_before(model, tenant, id, redis.call('HGET', task_key(id), 'place'))
