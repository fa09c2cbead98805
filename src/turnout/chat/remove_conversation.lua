-- Removes a conversation. Returns what was stored of it, or nothing.
local owner, id = unpack(ARGV)
local kept = conversations_key(owner)
local doc = redis.call('HGET', kept, id)
redis.call('HDEL', kept, id)
return doc
