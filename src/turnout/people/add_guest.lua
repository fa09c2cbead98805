-- Stores a guest until `ends_at`. Returns -1, or -2 when there are `most` of them, or the bound of those who may come from there in a
-- day. Then come the account of where she came from, and its bound.
local id, doc, at, ends_at, most, day = unpack(ARGV, 1, 6)
if redis.call('ZCARD', guests_key()) >= tonumber(most) then return -2 end
local bound = allowance_spent(day, 'guests', 7)
if bound then return bound end
count_allowance(day, 'guests', 7, 1)
redis.call('HSET', person_key(id), 'doc', doc, 'seen', at)
redis.call('ZADD', guests_key(), ends_at, id)
return -1
