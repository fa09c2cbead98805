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

-- The highest tag served; tasks/fairness_rules says how tenants take turns.
local function clock(model) return tonumber(redis.call('GET', clock_key(model)) or '0') or 0 end

-- The tenant's turn is over. Tags up to the clock say nothing of those who left, so only those above it are kept.
local function end_turn(model, tenant, tag)
  redis.call('SET', clock_key(model), tag)
  redis.call('ZREMRANGEBYSCORE', served_key(model), '-inf', tag)
  redis.call('ZADD', served_key(model), tag + 1, tenant)
  redis.call('ZADD', tenants_key(model), 'XX', tag + 1, tenant)
end

local function start_waiting(model, tenant, id, place)
  redis.call('ZADD', waiting_key(model, tenant), tonumber(place) and place or 0, id)
  local tag = math.max(clock(model), tonumber(redis.call('ZSCORE', served_key(model), tenant) or '0'))
  redis.call('ZADD', tenants_key(model), 'NX', tag, tenant)
  count(counts_key(tenant), 'waiting', 1)
end

-- Returns whether the task was waiting.
local function stop_waiting(model, tenant, id)
  if redis.call('ZREM', waiting_key(model, tenant), id) == 0 then return false end
  count(counts_key(tenant), 'waiting', -1)
  if redis.call('EXISTS', waiting_key(model, tenant)) == 0 then
    redis.call('ZREM', tenants_key(model), tenant)
  end
  return true
end

-- What is needed to say how many tasks are served before one: how many of its tenant's wait before it, then for every
-- tenant its name, its tag and how many of its tasks wait. Empty when the task is not waiting.
local function line_before(model, tenant, id)
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
end

local function record(id, tenant, event, ttl_ms)
  local event_id = redis.call('XADD', task_events_key(id), 'MAXLEN', '~', MAX_TASK_EVENTS, '*', 'e', event)
  redis.call('PEXPIRE', task_events_key(id), ttl_ms)
  redis.call(
    'XADD', all_events_key(), 'MAXLEN', '~', MAX_EVENTS, '*', 'i', event_id, 't', id, 'n', tenant, 'e', event
  )
end
