-- Writes how GPU time was divided, if nobody divided since it was read: what each tenant took is no longer undivided, and the work
-- that it was divided by is used up. Returns 1 or 0.
-- Then come (tenant, day, state, model, ms) × parts, (tenant:model, ms) × works, and (model, its last users)…; none: forget them.
local number_before, usage_ms, parts, works = unpack(ARGV, 1, 4)
if (redis.call('GET', gpu_divisions_key()) or '') ~= number_before then return 0 end
next_number(gpu_divisions_key())

local function take(key, field, ms)
  count(key, field, -tonumber(ms))
  if (tonumber(redis.call('HGET', key, field)) or 0) <= 0 then redis.call('HDEL', key, field) end
end

local at = 5
for _ = 1, tonumber(parts) do
  local tenant, day, state, model, ms = unpack(ARGV, at, at + 4)
  take(gpu_undivided_key(), day .. ':' .. state .. ':' .. model, ms)
  count(gpu_models_key(day), 'share:' .. state .. ':' .. model, ms)
  count_use(day, tenant, model, state .. '_ms', ms, usage_ms)
  at = at + 5
end
for _ = 1, tonumber(works) do
  take(gpu_work_key(), ARGV[at], ARGV[at + 1])
  at = at + 2
end
for i = at, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', gpu_users_key(), ARGV[i])
  else
    redis.call('HSET', gpu_users_key(), ARGV[i], ARGV[i + 1])
  end
end
return 1
