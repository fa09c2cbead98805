-- What is needed to say how many tasks are served before one: how many of its tenant's wait before it, then for every
-- tenant its name, its tag and how many of its tasks wait. Empty when the task is not waiting.
local model, tenant, id = unpack(ARGV)
local before = redis.call('ZRANK', waiting_key(model, tenant), id)
if not before then return {} end
local found = {before}
local tenants = redis.call('ZRANGE', tenants_key(model), 0, -1, 'WITHSCORES')
for i = 1, #tenants, 2 do
  found[#found + 1] = tenants[i]
  found[#found + 1] = tenants[i + 1]
  found[#found + 1] = redis.call('ZCARD', waiting_key(model, tenants[i]))
end
return found
