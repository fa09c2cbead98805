-- Notes when a person was there; nothing for one who is gone.
local id, at = unpack(ARGV)
if redis.call('HEXISTS', person_key(id), 'doc') == 1 then redis.call('HSET', person_key(id), 'seen', at) end
return 1
