-- Gives a gateway as much of its request as the tenant's account holds. The clock is this server's.
-- Returns {requests, tokens, permits, requests left, tokens left}; the last two as text, as they are not whole.
-- A gateway whose answer was lost sends its request again under the same number: it is granted the same, and counts once.
local tenant, gateway, requests_per_minute, tokens_per_minute, concurrency, requests, tokens, debt_requests, debt_tokens,
  number, wanted_permits, permits_ms = unpack(ARGV)
local per_minute = {r = tonumber(requests_per_minute), t = tonumber(tokens_per_minute)}
local wanted = {r = tonumber(requests), t = tonumber(tokens)}
local debt = {r = tonumber(debt_requests), t = tonumber(debt_tokens)}
concurrency, wanted_permits, permits_ms = tonumber(concurrency), tonumber(wanted_permits), tonumber(permits_ms)
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- A number as it was stored; `otherwise` when it is none, or none that this script wrote.
local function stored(text, otherwise)
  local found = tonumber(text or '')
  return found and math.abs(found) < 1e15 and found or otherwise
end

local account = chat_account_key(tenant)
local known = redis.call('HMGET', account, 'at', 'r', 't', 'by:' .. gateway)
local before = {string.match(known[4] or '', '^(%d+) (%d+) (%d+)$')}
local repeated = tonumber(number) > 0 and tonumber(number) <= tonumber(before[1] or '0')
if repeated then
  wanted, debt = {r = 0, t = 0}, {r = 0, t = 0}
end
local passed_ms = math.max(0, now_ms - stored(known[1], now_ms))
local level = {r = stored(known[2], per_minute.r), t = stored(known[3], per_minute.t)}
local granted = {r = 0, t = 0}
local full_ms = 0
for kind, limit in pairs(per_minute) do
  if limit > 0 then
    local there = math.min(limit, level[kind] + passed_ms * limit / 60000) - debt[kind]
    if wanted[kind] > 0 then
      granted[kind] = math.floor(math.max(0, math.min(wanted[kind], there)))
    else
      granted[kind] = 0
      there = math.min(limit, there - wanted[kind])
    end
    level[kind] = there - granted[kind]
    full_ms = math.max(full_ms, (limit - level[kind]) * 60000 / limit)
  end
end
if full_ms > 0 then
  redis.call('HSET', account, 'at', now_ms, 'r', tostring(level.r), 't', tostring(level.t))
  if tonumber(number) > 0 and not repeated then
    redis.call('HSET', account, 'by:' .. gateway, string.format('%s %d %d', number, granted.r, granted.t))
  end
  redis.call('PEXPIRE', account, math.ceil(full_ms) + 1000) -- a full account is the same as none
end

if repeated then granted = {r = tonumber(before[2]), t = tonumber(before[3])} end
local permits = 0
if concurrency > 0 then
  local lent = chat_permits_key(tenant)
  local held = redis.call('HGETALL', lent)
  local others = 0
  for i = 1, #held, 2 do
    local count, till = string.match(held[i + 1], '^(%d+) (%d+)$')
    if not till or tonumber(till) <= now_ms then
      redis.call('HDEL', lent, held[i])
    elseif held[i] ~= gateway then
      others = others + tonumber(count)
    end
  end
  permits = math.max(0, math.min(wanted_permits, concurrency - others))
  if permits > 0 then
    redis.call('HSET', lent, gateway, string.format('%d %.0f', permits, now_ms + permits_ms))
    redis.call('PEXPIRE', lent, permits_ms)
  else
    redis.call('HDEL', lent, gateway)
  end
end
return {granted.r, granted.t, permits, tostring(level.r), tostring(level.t)}
