-- Shared by every script (prepended when loaded): names of keys, and the moves of a task between the waiting
-- line and the queue of turns. KEYS[1] is the prefix; other names are derived from it, so one Redis (not a
-- Redis Cluster) holds everything.
--
-- The queue of a model holds one entry (a turn) for each unfinished task. A turn is not tied to a task until a
-- gang claims it: the claim binds it to whoever is next. So: unclaimed turns = waiting tasks, always.
local P = KEYS[1]
local GROUP = 'gangs'

local function task_key(id) return P .. ':task:' .. id end
local function queue_key(model) return P .. ':queue:' .. model end
local function lines_key(model) return P .. ':tenants:' .. model end
local function line_key(model, tenant) return P .. ':waiting:' .. model .. ':' .. tenant end
local function clock_key(model) return P .. ':clock:' .. model end
local function bound_key(model) return P .. ':bound:' .. model end
local function unfinished_key(model) return P .. ':unfinished:' .. model end
local function counts_key(tenant) return P .. ':counts:' .. tenant end
local function story_key(id) return P .. ':events:' .. id end
local function closed_key(gang) return P .. ':closed:' .. gang end
local TOTALS = P .. ':totals'
local EVENTS = P .. ':events'
local OUTBOX = P .. ':outbox'
local QUEUES = P .. ':queues'
local NEWS = P .. ':fleet:news'

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

local function join_line(model, tenant, id, place)
  redis.call('ZADD', line_key(model, tenant), place, id)
  redis.call('ZADD', lines_key(model), 'NX', redis.call('GET', clock_key(model)) or '0', tenant)
  redis.call('HINCRBY', counts_key(tenant), 'waiting', 1)
end

local function leave_line(model, tenant, id)
  local was_there = redis.call('ZREM', line_key(model, tenant), id)
  if was_there == 1 then
    redis.call('HINCRBY', counts_key(tenant), 'waiting', -1)
    if redis.call('EXISTS', line_key(model, tenant)) == 0 then
      redis.call('ZREM', lines_key(model), tenant)
    end
  end
  return was_there == 1
end

local function record(id, tenant, event, ttl_ms, max_events)
  local story_id = redis.call('XADD', story_key(id), 'MAXLEN', '~', 5000, '*', 'e', event)
  redis.call('PEXPIRE', story_key(id), ttl_ms)
  redis.call('XADD', EVENTS, 'MAXLEN', '~', max_events, '*', 'i', story_id, 't', id, 'n', tenant, 'e', event)
end

-- What tenants used: one hash a day and tenant, and the names of the tenants of each day.
local function count_use(day, tenant, model, figure, amount, ttl_ms)
  local mine, tenants = P .. ':usage:of:' .. day .. ':' .. tenant, P .. ':usage:day:' .. day
  redis.call('HINCRBY', mine, figure .. ':' .. model, amount)
  redis.call('PEXPIRE', mine, ttl_ms)
  redis.call('SADD', tenants, tenant)
  redis.call('PEXPIRE', tenants, ttl_ms)
end
