-- Carries out a manager's writes if it still holds its right: all of them or none. Returns 1 or 0.
-- Then come (operation, key, field, value)…
local right, owner, orders_ms = unpack(ARGV, 1, 3)
if redis.call('GET', mutex_key(right)) ~= owner then return 0 end
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
  elseif operation == 'tell' then
    redis.call('XADD', changes_key(), 'MAXLEN', '~', MAX_NEWS, '*', field, value)
  end
end
return 1
