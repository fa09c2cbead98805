-- Carries out a manager's writes if it still holds its right: all of them or none. Returns 1 or 0.
-- Then come (operation, key, field, value)…
local right, owner, orders_ms = unpack(ARGV, 1, 3)
if redis.call('GET', mutex_key(right)) ~= owner then return 0 end

-- GPU time of a worker, in the day's tables and beside them as that worker's own, so that it can be taken back. A worker that
-- was evicted since it counted books nothing.
local function book(worker, day_and_cell, ms)
  if redis.call('HEXISTS', worker_key(worker), 'evicted') == 1 then return end
  local day, state_and_kind, model = string.match(day_and_cell, '^([^:]*):([^:]*:[^:]*:)(.*)$')
  local own = gpu_booked_key(string.sub(day, 1, 7), worker)
  count(gpu_models_key(day), state_and_kind .. model, ms)
  count(gpu_workers_key(day), state_and_kind .. worker, ms)
  local state = string.match(state_and_kind, '^[^:]*')
  if state ~= 'free' then count(gpu_undivided_key(), day .. ':' .. state .. ':' .. model, ms) end
  if redis.call('EXISTS', own) == 0 then
    redis.call('HSET', own, day_and_cell, ms)
    redis.call('PEXPIRE', own, GPU_BOOKED_MS)
  else
    count(own, day_and_cell, ms)
  end
end

for i = 4, #ARGV, 4 do
  local operation, key, field, value = unpack(ARGV, i, i + 3)
  if operation == 'hset' then
    redis.call('HSET', key, field, value)
  elseif operation == 'hincrby' then
    count(key, field, value)
  elseif operation == 'expire' then
    redis.call('PEXPIRE', key, value)
  elseif operation == 'hdel' then
    redis.call('HDEL', key, field)
  elseif operation == 'del' then
    redis.call('DEL', key)
  elseif operation == 'orders' then
    redis.call('HSET', key, 'v', field, 'doc', value)
    redis.call('PEXPIRE', key, orders_ms)
  elseif operation == 'book' then
    book(key, field, value)
  elseif operation == 'tell' then
    redis.call('XADD', changes_key(), 'MAXLEN', '~', MAX_NEWS, '*', field, value)
  end
end
return 1
