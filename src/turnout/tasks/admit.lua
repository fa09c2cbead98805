-- Counts a submission for which an address is to be called before it is accepted, or refuses it. Only the rate is counted here:
-- the room is looked at again when the task is stored.
-- Returns {'new'} | {'same', id} | {'conflict'} | {'rate', ms until the next minute} | {'full', running, waiting} | {'day', most}
-- Then come (account, most)… of what may be asked for in a day.
local tenant, now_ms, max_waiting, max_running, per_minute, idempotency, digest, day = unpack(ARGV, 1, 8)
now_ms = tonumber(now_ms)
local refusal = accepted_before(tenant, idempotency, digest) or over_rate(tenant, now_ms, per_minute)
  or no_room(tenant, max_running, max_waiting) or over_allowance(day, 9)
if refusal then return refusal end
count_submission(tenant, now_ms)
return {'new'}
