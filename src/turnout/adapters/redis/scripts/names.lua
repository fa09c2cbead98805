-- Stands before every script: the names of keys, and how a task moves between waiting and the queue. KEYS[1] is the prefix.
-- The names are those of key_names.py, which says what each key holds.
--
-- The queue of a model holds one entry (a turn) for each unfinished task. A turn is not tied to a task until a
-- gang claims it: the claim binds it to the task that is next. So the unclaimed turns are as many as the waiting tasks.
local P = KEYS[1]
local GROUP = 'gangs'
local MAX_NEWS = 10000
local MAX_EVENTS = 100000  -- of the stream that gateways tail; the task's own stream is kept apart
local MAX_TASK_EVENTS = 5000

local function task_key(id) return P .. ':task:' .. id end
local function task_events_key(id) return P .. ':events:' .. id end
local function all_events_key() return P .. ':events' end
local function tasks_of_key(tenant) return P .. ':of:' .. tenant end
local function idempotency_key(tenant, key) return P .. ':idem:' .. tenant .. ':' .. key end
local function submissions_key(tenant, minute) return P .. ':rate:' .. tenant .. ':' .. minute end
local function counts_key(tenant) return P .. ':counts:' .. tenant end
local function totals_key() return P .. ':totals' end
local function places_key() return P .. ':places' end
local function queues_key() return P .. ':queues' end
local function queue_key(model) return P .. ':queue:' .. model end
local function bound_key(model) return P .. ':bound:' .. model end
local function tenants_key(model) return P .. ':tenants:' .. model end
local function waiting_key(model, tenant) return P .. ':waiting:' .. model .. ':' .. tenant end
local function served_key(model) return P .. ':served:' .. model end
local function clock_key(model) return P .. ':clock:' .. model end
local function unfinished_key(model) return P .. ':unfinished:' .. model end
local function closed_key(gang) return P .. ':closed:' .. gang end
local function outbox_key() return P .. ':outbox' end
local function webhook_secrets_key() return P .. ':webhook_secrets' end
local function webhook_tries_key(id) return P .. ':webhook:' .. id end
local function chat_account_key(tenant) return P .. ':chat:account:' .. tenant end
local function chat_slots_key(tenant) return P .. ':chat:slots:' .. tenant end
local function usage_of_key(day, tenant) return P .. ':usage:of:' .. day .. ':' .. tenant end
local function usage_day_key(day) return P .. ':usage:day:' .. day end
local function gpu_models_key(day) return P .. ':usage:gpu:' .. day end
local function usage_batch_key(batch) return P .. ':usage:batch:' .. batch end
local function genesis_key() return P .. ':genesis' end
local function canary_key() return P .. ':canary' end
local function mutex_key(name) return P .. ':mutex:' .. name end
local function worker_key(worker) return P .. ':fleet:worker:' .. worker end
local function heartbeat_key(worker) return P .. ':fleet:beat:' .. worker end
local function orders_key(worker) return P .. ':fleet:orders:' .. worker end
local function news_key() return P .. ':fleet:news' end
local function changes_key() return P .. ':fleet:changes' end

-- Adds to a count; one that is no number begins anew, so that it stops nothing.
local function count(key, field, by)
  local done = redis.pcall('HINCRBY', key, field, by)
  if type(done) == 'table' and done.err then redis.call('HSET', key, field, math.max(0, tonumber(by) or 0)) end
end

-- The next number of a counter; one that is no number goes on at the time in ms, which is above what it can have counted.
local function next_number(key)
  local done = redis.pcall('INCR', key)
  if type(done) == 'number' then return done end
  local time = redis.call('TIME')
  local number = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('SET', key, string.format('%.0f', number))
  return number
end

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

-- The highest tag served; domain/fairness says how tenants take turns.
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
