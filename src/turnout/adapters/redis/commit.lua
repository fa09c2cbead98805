-- Writes a task's next version with the event that led to it, if nobody wrote in between.
-- `move` says what becomes of its turn: 'keep', 'requeue' (back into the line), 'end'. Returns 1, or 0 when
-- the version was another.
local id, version, doc, state, move = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local now_ms, ttl_ms, event, max_events = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local webhook = ARGV[10]
-- The rest: when it ends, the day, the lifetime of counts, and (figure, amount)… of what it used.

local key = task_key(id)
local current, tenant, model, old_state, turn, place =
  unpack(redis.call('HMGET', key, 'v', 'tenant', 'model', 'state', 'turn', 'place'))
if current ~= version then return 0 end

redis.call('HSET', key, 'v', tonumber(version) + 1, 'doc', doc, 'state', state)
redis.call('PEXPIRE', key, ttl_ms)
if old_state ~= state then
  redis.call('HINCRBY', TOTALS, old_state, -1)
  redis.call('HINCRBY', TOTALS, state, 1)
end

if move ~= 'keep' then
  if turn then
    drop_turn(model, turn)
    redis.call('HDEL', key, 'turn', 'gang')
    redis.call('HINCRBY', counts_key(tenant), 'running', -1)
  elseif move == 'end' and leave_line(model, tenant, id) then
    drop_unclaimed_turn(model)
  end
end
if move == 'requeue' and turn then
  add_turn(model)
  join_line(model, tenant, id, place)
elseif move == 'end' then
  redis.call('ZREM', unfinished_key(model), id)
  if webhook == '1' then redis.call('ZADD', OUTBOX, now_ms, id) end
  for i = 13, #ARGV, 2 do count_use(ARGV[11], tenant, model, ARGV[i], ARGV[i + 1], ARGV[12]) end
end
if event ~= '' then record(id, tenant, event, ttl_ms, max_events) end
return 1
