-- Stores a preset. Returns 1, or 0 if its owner has `most` others.
local owner, name, doc, most = unpack(ARGV)
local own = presets_key(owner)
if redis.call('HEXISTS', own, name) == 0 and redis.call('HLEN', own) >= tonumber(most) then return 0 end
redis.call('HSET', own, name, doc)
return 1
