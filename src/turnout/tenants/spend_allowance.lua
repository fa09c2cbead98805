-- Counts what was asked for against allowances, or gives it back (`by` -1). Returns -1, or the bound that is reached.
-- Then come (account, most)…
local day, what, by = unpack(ARGV, 1, 3)
local most = tonumber(by) > 0 and allowance_spent(day, what, 4)
if most then return most end
count_allowance(day, what, 4, by)
return -1
