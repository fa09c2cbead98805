-- Takes or renews a right for a while. Returns 1, or 0 when another holds it.
local name, owner, ttl_ms = unpack(ARGV)
local holder = redis.call('GET', mutex_key(name))
if holder and holder ~= owner then return 0 end
redis.call('SET', mutex_key(name), owner, 'PX', ttl_ms)
return 1
