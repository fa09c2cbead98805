-- Takes or renews a right for a while. Returns 1, or 0 when another holds it.
local name, owner, ttl_ms = P .. ':mutex:' .. ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GET', name)
if holder and holder ~= owner then return 0 end
redis.call('SET', name, owner, 'PX', ttl_ms)
return 1
