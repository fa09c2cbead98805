-- Adds to what a tenant used on a day, and to the tenants of that day. All tenants' work on a model is added up, too: its GPU
-- time is divided by that.
local function count_use(day, tenant, model, figure, amount, ttl_ms)
  count(usage_of_key(day, tenant), figure .. ':' .. model, amount)
  redis.call('PEXPIRE', usage_of_key(day, tenant), ttl_ms)
  redis.call('SADD', usage_day_key(day), tenant)
  redis.call('PEXPIRE', usage_day_key(day), ttl_ms)
  if figure == 'work_ms' then
    count(gpu_models_key(day), 'work::' .. model, amount)
    redis.call('PEXPIRE', gpu_models_key(day), ttl_ms)
  end
end
