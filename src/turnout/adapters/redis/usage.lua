-- Adds up a gateway's counts. A batch that came before (its answer was lost) changes nothing. Returns 1 or 0.
-- ARGV: name of the batch, lifetime in ms, then (day, tenant, model, figure, amount)…
if not redis.call('SET', P .. ':usage:batch:' .. ARGV[1], '', 'NX', 'PX', 3600000) then return 0 end
for i = 3, #ARGV, 5 do
  count_use(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[2])
end
return 1
