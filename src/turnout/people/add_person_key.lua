-- Stores a key of a person. Returns 1, or 0 if she is gone or has `most` keys.
local id, key, doc, most = unpack(ARGV)
local own = person_key(id)
if redis.call('HEXISTS', own, 'doc') == 0 then return 0 end
-- Beside her keys there are two fields.
if redis.call('HEXISTS', own, 'key:' .. key) == 0 and redis.call('HLEN', own) - 2 >= tonumber(most) then return 0 end
redis.call('HSET', own, 'key:' .. key, doc)
return 1
