-- What accounts may ask for in a day: (account, most)… stand in ARGV from `first` on.

-- The bound of the first account that has nothing left; nothing if all have.
local function allowance_spent(day, what, first)
  for i = first, #ARGV, 2 do
    local asked = tonumber(redis.call('HGET', allowance_key(ARGV[i], day), what) or '0') or 0
    if asked >= tonumber(ARGV[i + 1]) then return tonumber(ARGV[i + 1]) end
  end
end

local function count_allowance(day, what, first, by)
  for i = first, #ARGV, 2 do
    count(allowance_key(ARGV[i], day), what, by)
    redis.call('PEXPIRE', allowance_key(ARGV[i], day), 172800000)
  end
end
