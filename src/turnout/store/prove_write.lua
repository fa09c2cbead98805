-- Writes, as a submission does, and returns which data this is. `fresh` names data that has no name yet; empty: name none.
local fresh = unpack(ARGV)
redis.call('SET', canary_key(), '1', 'PX', 60000)
if fresh ~= '' then redis.call('SET', genesis_key(), fresh, 'NX') end
return redis.call('GET', genesis_key()) or ''
