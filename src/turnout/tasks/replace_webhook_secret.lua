-- Replaces a tenant's webhook secret if the stored one is still `before` (empty: none). Returns 1, or 0 if it is not.
local tenant, before, after = unpack(ARGV)
if (redis.call('HGET', webhook_secrets_key(), tenant) or '') ~= before then return 0 end
redis.call('HSET', webhook_secrets_key(), tenant, after)
return 1
