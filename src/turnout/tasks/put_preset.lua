-- Stores a preset. Returns 1, 0 if its owner has `most` others, or -1 if she is gone.
local owner, name, doc, most = unpack(ARGV)
local own = presets_key(owner)
if not owner_stays(owner) then return -1 end
if redis.call('HEXISTS', own, name) == 0 and redis.call('HLEN', own) >= tonumber(most) then return 0 end
redis.call('HSET', own, name, doc)
return 1
