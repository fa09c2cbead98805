-- Adds to what a tenant used on a day, and to the tenants of that day. All tenants' work on a model is added up, too: its GPU
-- time of days that are not divided is divided by that. What was not yet divided by stands apart.
local function count_use(day, tenant, model, figure, amount, ttl_ms)
  count(usage_of_key(day, tenant), figure .. ':' .. model, amount)
  redis.call('PEXPIRE', usage_of_key(day, tenant), ttl_ms)
  redis.call('SADD', usage_day_key(day), tenant)
  redis.call('PEXPIRE', usage_day_key(day), ttl_ms)
  if figure == 'work_ms' then
    count(gpu_models_key(day), 'work::' .. model, amount)
    count(gpu_work_key(), tenant .. ':' .. model, amount)
    redis.call('PEXPIRE', gpu_work_key(), GPU_WORK_MS)
    redis.call('PEXPIRE', gpu_models_key(day), ttl_ms)
  end
end

-- Books the work of an attempt since it was booked last, or since `begun_ms` if it never was. Gangs give a sign of life every few
-- seconds: more than a minute is an outage, or a gateway whose clock was set anew.
local function book_work(id, tenant, model, at_ms, begun_ms, day, ttl_ms)
  local since = tonumber(redis.call('HGET', task_key(id), 'worked')) or tonumber(begun_ms)
  local ms = math.min(60000, math.floor(tonumber(at_ms) - since))
  if ms > 0 then
    count_use(day, tenant, model, 'work_ms', ms, ttl_ms)
    count_use(day, tenant, model, 'render_ms', ms, ttl_ms)
  end
  redis.call('HSET', task_key(id), 'worked', at_ms)
end
