-- Adds up a gateway's counts. A batch that came before (its answer was lost) changes nothing. Returns 1 or 0.
-- Then come (day, tenant, model, figure, amount)…
local batch, usage_ms = unpack(ARGV, 1, 2)
if not redis.call('SET', usage_batch_key(batch), '', 'NX', 'PX', 3600000) then return 0 end
for i = 3, #ARGV, 5 do
  count_use(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], usage_ms)
end
return 1
