-- What a submission must pass before anything is done for it.

-- Returns 'conflict', or 'same' and the id of the task that this idempotency key made before; nothing if none did.
local function accepted_before(tenant, idempotency, digest)
  if idempotency == '' then return nil end
  local seen_digest, seen_id = unpack(redis.call('HMGET', idempotency_key(tenant, idempotency), 'digest', 'task'))
  -- A task that was deleted is forgotten, and so is its key.
  if not (seen_digest and seen_id and redis.call('EXISTS', task_key(seen_id)) == 1) then return nil end
  if seen_digest ~= digest then return {'conflict'} end
  -- A write, so that a client which asks again waits for the disk again.
  redis.call('HSET', idempotency_key(tenant, idempotency), 'digest', digest)
  return {'same', seen_id}
end

-- The submissions of this minute.
local function minute_of(tenant, now_ms)
  return submissions_key(tenant, string.format('%d', math.floor(now_ms / 60000)))
end

-- Returns {'rate', ms until the next minute}, or nothing.
local function over_rate(tenant, now_ms, per_minute)
  if (tonumber(redis.call('GET', minute_of(tenant, now_ms)) or '0') or 0) < tonumber(per_minute) then return nil end
  return {'rate', 60000 - now_ms % 60000}
end

-- Returns {'full', running, waiting}, or nothing.
local function no_room(tenant, max_running, max_waiting)
  local counts = redis.call('HMGET', counts_key(tenant), 'running', 'waiting')
  local running, waiting = tonumber(counts[1] or '0') or 0, tonumber(counts[2] or '0') or 0
  if running + waiting < max_running + max_waiting then return nil end
  return {'full', running, waiting}
end

-- Returns {'day', how many a day}, or nothing.
local function over_allowance(day, first)
  local most = allowance_spent(day, 'videos', first)
  return most and {'day', most}
end

local function count_submission(tenant, now_ms)
  local minute = minute_of(tenant, now_ms)
  if not tonumber(redis.call('GET', minute) or '0') then redis.call('DEL', minute) end
  redis.call('INCR', minute)
  redis.call('PEXPIRE', minute, 120000)
end
