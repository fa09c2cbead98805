-- Writes a person if she is still stored as `before`. Returns 1, or 0 if she is not.
local id, before, after = unpack(ARGV)
if redis.call('HGET', person_key(id), 'doc') ~= before then return 0 end
redis.call('HSET', person_key(id), 'doc', after)
return 1
