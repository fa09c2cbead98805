-- How a task moves between waiting and the queue.
--
-- The queue of a model holds one entry (a turn) for each unfinished task. A turn is not tied to a task until a
-- gang claims it: the claim binds it to the task that is next. So the unclaimed turns are as many as the waiting tasks.
local function ensure_group(queue)
  if redis.call('EXISTS', queue) == 0 then
    redis.call('XGROUP', 'CREATE', queue, GROUP, '0', 'MKSTREAM')
  end
end

local function add_turn(model)
  ensure_group(queue_key(model))
  redis.call('XADD', queue_key(model), '*', 't', '')
end

local function drop_turn(model, turn)
  redis.call('XACK', queue_key(model), GROUP, turn)
  redis.call('XDEL', queue_key(model), turn)
  redis.call('HDEL', bound_key(model), turn)
end

-- Takes away one turn that no gang has claimed: the newest, if it was not delivered yet.
local function drop_unclaimed_turn(model)
  local newest = redis.call('XREVRANGE', queue_key(model), '+', '-', 'COUNT', 1)[1]
  if newest and #redis.call('XPENDING', queue_key(model), GROUP, newest[1], newest[1], 1) == 0 then
    redis.call('XDEL', queue_key(model), newest[1])
  end
end

-- A model has two lines: the tenants', by the model's own name, and that of guests, which is looked at when nobody in the first
-- may be served. tasks/fairness_rules says how tenants take turns in each. The place tells in which a task waits.
local FIRST_GUEST_PLACE = 30000000000000
local function guests_line(model) return model .. '!guests' end
local function line_of(model, place)
  return (tonumber(place) or 0) < FIRST_GUEST_PLACE and model or guests_line(model)
end

-- The highest tag served.
local function clock(line) return tonumber(redis.call('GET', clock_key(line)) or '0') or 0 end

-- The tenant's turn is over. Tags up to the clock say nothing of those who left, so only those above it are kept.
local function end_turn(line, tenant, tag)
  redis.call('SET', clock_key(line), tag)
  redis.call('ZREMRANGEBYSCORE', served_key(line), '-inf', tag)
  redis.call('ZADD', served_key(line), tag + 1, tenant)
  redis.call('ZADD', tenants_key(line), 'XX', tag + 1, tenant)
end

local function start_waiting(model, tenant, id, place)
  local line = line_of(model, place)
  redis.call('ZADD', waiting_key(line, tenant), tonumber(place) and place or 0, id)
  local tag = math.max(clock(line), tonumber(redis.call('ZSCORE', served_key(line), tenant) or '0'))
  redis.call('ZADD', tenants_key(line), 'NX', tag, tenant)
  count(counts_key(tenant), 'waiting', 1)
end

-- Returns whether the task was waiting.
local function stop_waiting(line, tenant, id)
  if redis.call('ZREM', waiting_key(line, tenant), id) == 0 then return false end
  count(counts_key(tenant), 'waiting', -1)
  if redis.call('EXISTS', waiting_key(line, tenant)) == 0 then
    redis.call('ZREM', tenants_key(line), tenant)
  end
  return true
end

-- What is needed to say how many tasks are served before one: how many of its tenant's wait before it, how many in the line before
-- its own, then for every tenant of its own its name, its tag and how many of its tasks wait. Empty when the task is not waiting.
local function line_before(model, tenant, id, place)
  local line = line_of(model, place)
  local before = redis.call('ZRANK', waiting_key(line, tenant), id)
  if not before then return {} end
  local found = {before, 0}
  if line ~= model then
    for _, other in ipairs(redis.call('ZRANGE', tenants_key(model), 0, -1)) do
      found[2] = found[2] + redis.call('ZCARD', waiting_key(model, other))
    end
  end
  local tenants = redis.call('ZRANGE', tenants_key(line), 0, -1, 'WITHSCORES')
  for i = 1, #tenants, 2 do
    found[#found + 1] = tenants[i]
    found[#found + 1] = tenants[i + 1]
    found[#found + 1] = redis.call('ZCARD', waiting_key(line, tenants[i]))
  end
  return found
end

local function record(id, tenant, event, ttl_ms)
  local event_id = redis.call('XADD', task_events_key(id), 'MAXLEN', '~', MAX_TASK_EVENTS, '*', 'e', event)
  redis.call('PEXPIRE', task_events_key(id), ttl_ms)
  redis.call(
    'XADD', all_events_key(), 'MAXLEN', '~', MAX_EVENTS, '*', 'i', event_id, 't', id, 'n', tenant, 'e', event
  )
end
