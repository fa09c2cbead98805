-- Accepts a task, or refuses it and leaves no trace.
-- Returns {'new', where it is in line} | {'same', id} | {'conflict'} | {'rate', ms until the next minute} | {'full', running, waiting}
-- | {'day', most} | {'gone'} for a person who is. Then come (account, most)… of what may be asked for in a day.
local id, doc, tenant, model, state, event, now_ms, retention_ms, first_place, max_waiting, max_running, per_minute,
  idempotency, digest, admitted, day, person = unpack(ARGV, 1, 17)
local allowances = 18
now_ms, retention_ms = tonumber(now_ms), tonumber(retention_ms)

if person ~= '' and not person_stays(person) then return {'gone'} end
local before = accepted_before(tenant, idempotency, digest)
if before then return before end
-- A client library that lost the reply may send the same script again.
if redis.call('EXISTS', task_key(id)) == 1 then return {'same', id} end

-- One that was admitted before is counted.
local refusal = (admitted == '0' and over_rate(tenant, now_ms, per_minute)) or no_room(tenant, max_running, max_waiting)
  or over_allowance(day, allowances)
if refusal then return refusal end
if admitted == '0' then count_submission(tenant, now_ms) end
count_allowance(day, 'videos', allowances, 1)

-- Unfinished tasks outlive the retention, so that the manager can end them with a reason.
local ttl_ms = 2 * retention_ms
local place = string.format('%.0f', tonumber(first_place) + next_number(places_key()))
redis.call('ZADD', tasks_of_key(tenant), now_ms, id)
redis.call('ZREMRANGEBYSCORE', tasks_of_key(tenant), '-inf', '(' .. (now_ms - ttl_ms))
redis.call('PEXPIRE', tasks_of_key(tenant), ttl_ms)
local time = redis.call('TIME')  -- its age is judged by this server's clock
redis.call('ZADD', unfinished_key(model), string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)), id)
add_turn(model)
start_waiting(model, tenant, id, place)
redis.call('PEXPIRE', counts_key(tenant), ttl_ms)
count(totals_key(), state, 1)
record(id, tenant, event, ttl_ms)
redis.call('SADD', queues_key(), model)
redis.call('XADD', news_key(), 'MAXLEN', '~', MAX_NEWS, '*', 'q', model)  -- wakes the manager
-- Last, so that a script which a key of the wrong type broke off has accepted nothing.
redis.call('HSET', task_key(id), 'v', 1, 'doc', doc, 'tenant', tenant, 'model', model, 'state', state, 'place', place)
redis.call('PEXPIRE', task_key(id), ttl_ms)
if idempotency ~= '' then
  redis.call('HSET', idempotency_key(tenant, idempotency), 'digest', digest, 'task', id)
  redis.call('PEXPIRE', idempotency_key(tenant, idempotency), ttl_ms)
end
return {'new', line_before(model, tenant, id, place)}
