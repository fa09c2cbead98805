-- Carries out a manager's writes if it still holds its right: all of them or none. Returns 1 or 0.
-- ARGV: right, owner, lifetime of orders in ms, bound of the stream, then (operation, key, field, value)…
local P = KEYS[1]
if redis.call('GET', P .. ':mutex:' .. ARGV[1]) ~= ARGV[2] then return 0 end
local changes = P .. ':fleet:changes'
for i = 5, #ARGV, 4 do
  local operation, key, field, value = ARGV[i], P .. ':fleet:' .. ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if operation == 'hset' then
    redis.call('HSET', key, field, value)
  elseif operation == 'hincrby' then
    redis.call('HINCRBY', key, field, value)
  elseif operation == 'hdel' then
    redis.call('HDEL', key, field)
  elseif operation == 'del' then
    redis.call('DEL', key)
  elseif operation == 'orders' then
    redis.call('HSET', key, 'v', field, 'doc', value)
    redis.call('PEXPIRE', key, ARGV[3])
  elseif operation == 'tell' then
    redis.call('XADD', changes, 'MAXLEN', '~', ARGV[4], '*', field, value)
  end
end
return 1
