-- Accepts a task, or refuses it and leaves no trace.
-- Returns {'new'} | {'same', id} | {'conflict', id} | {'rate', ms until the next minute} | {'full', running, waiting}
local id, doc, tenant, model, place_base, state = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local now_ms, retention_ms, event, max_events = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10]
local max_waiting, max_running, per_minute = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local idempotency, digest = ARGV[14], ARGV[15]

local seen_key = P .. ':idem:' .. tenant .. ':' .. idempotency
if idempotency ~= '' then
  local seen_digest, seen_id = unpack(redis.call('HMGET', seen_key, 'digest', 'task'))
  if seen_digest then
    if seen_digest ~= digest then return {'conflict', seen_id} end
    return {'same', seen_id}
  end
end
-- A client library that lost the reply may send the same script again.
if redis.call('EXISTS', task_key(id)) == 1 then return {'same', id} end

local minute = P .. ':rate:' .. tenant .. ':' .. string.format('%d', math.floor(now_ms / 60000))
if tonumber(redis.call('GET', minute) or '0') >= per_minute then
  return {'rate', 60000 - now_ms % 60000}
end
local counts = redis.call('HMGET', counts_key(tenant), 'running', 'waiting')
local running, waiting = tonumber(counts[1] or '0'), tonumber(counts[2] or '0')
if running + waiting >= max_running + max_waiting then return {'full', running, waiting} end

redis.call('INCR', minute)
redis.call('PEXPIRE', minute, 120000)
if idempotency ~= '' then
  redis.call('HSET', seen_key, 'digest', digest, 'task', id)
  redis.call('PEXPIRE', seen_key, retention_ms)
end
-- Unfinished tasks outlive the retention, so that the manager can end them with a reason.
local place = string.format('%.0f', tonumber(place_base) + redis.call('INCR', P .. ':places'))
redis.call('HSET', task_key(id), 'v', 1, 'doc', doc, 'tenant', tenant, 'model', model, 'state', state, 'place', place)
redis.call('PEXPIRE', task_key(id), 2 * retention_ms)
local mine = P .. ':of:' .. tenant
redis.call('ZADD', mine, now_ms, id)
redis.call('ZREMRANGEBYSCORE', mine, '-inf', '(' .. (now_ms - 2 * retention_ms))
redis.call('PEXPIRE', mine, 2 * retention_ms)
redis.call('ZADD', unfinished_key(model), now_ms, id)
add_turn(model)
join_line(model, tenant, id, place)
redis.call('PEXPIRE', counts_key(tenant), 2 * retention_ms)
redis.call('HINCRBY', TOTALS, state, 1)
record(id, tenant, event, 2 * retention_ms, max_events)
redis.call('SADD', QUEUES, model)
redis.call('XADD', NEWS, 'MAXLEN', '~', 10000, '*', 'q', model)  -- wakes the manager
return {'new'}
