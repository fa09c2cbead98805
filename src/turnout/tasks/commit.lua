-- Writes a task's next version with the event that led to it, if nobody wrote in between.
-- `move` says what becomes of its turn: 'keep', 'requeue' (the task waits again), 'end'. Returns 1, or 0 when
-- the version was another. Then come (figure, amount)… of what a task that ends, or an attempt of it, used.
-- `work` says of an attempt that it 'begins', 'ends', or is 'lost': then nobody knows how long it worked after its last sign of life.
local id, version, doc, state, attempt, move, event, ended_ms, ttl_ms, webhook, day, usage_ms,
  work, at_ms, begun_ms = unpack(ARGV, 1, 15)
local used = 16

local key = task_key(id)
local current, tenant, model, old_state, turn, place =
  unpack(redis.call('HMGET', key, 'v', 'tenant', 'model', 'state', 'turn', 'place'))
if current ~= version then return 0 end

redis.call('HSET', key, 'v', tonumber(version) + 1, 'doc', doc, 'state', state, 'attempt', attempt)
redis.call('PEXPIRE', key, ttl_ms)
if old_state ~= state then
  count(totals_key(), old_state, -1)
  count(totals_key(), state, 1)
end

if move ~= 'keep' then
  if turn then
    drop_turn(model, turn)
    redis.call('HDEL', key, 'turn', 'gang')
    count(counts_key(tenant), 'running', -1)
    redis.call('XADD', news_key(), 'MAXLEN', '~', MAX_NEWS, '*', 'q', model)  -- a gang may claim another, or this one again
  elseif move == 'end' and stop_waiting(line_of(model, place), tenant, id) then
    drop_unclaimed_turn(model)
  end
end
if move == 'requeue' and turn then
  add_turn(model)
  start_waiting(model, tenant, id, place)
elseif move == 'end' then
  redis.call('ZREM', unfinished_key(model), id)
  if webhook == '1' then redis.call('ZADD', outbox_key(), ended_ms, id) end
end
if work == 'begins' then
  redis.call('HSET', key, 'worked', at_ms)
elseif work ~= '' then
  if work == 'ends' then book_work(id, tenant, model, at_ms, begun_ms, day, usage_ms) end
  redis.call('HDEL', key, 'worked')
end
for i = used, #ARGV, 2 do count_use(day, tenant, model, ARGV[i], ARGV[i + 1], usage_ms) end
if event ~= '' then record(id, tenant, event, ttl_ms) end
return 1
