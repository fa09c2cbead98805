-- Names the guests' attempts that make way: one for each task in the tenants' line that has waited for `wait_ms`, may run, and for which
-- none did. Those of the newest turns are first. Returns {turn, task}…
local model, max_running, wait_ms = unpack(ARGV)
local time = redis.call('TIME')
local before_ms = time[1] * 1000 + time[2] / 1000 - tonumber(wait_ms)
local waiting = {}
for _, tenant in ipairs(redis.call('ZRANGE', tenants_key(model), 0, -1)) do
  local room = tonumber(max_running) - (tonumber(redis.call('HGET', counts_key(tenant), 'running') or '0') or 0)
  local ids = room > 0 and redis.call('ZRANGE', waiting_key(model, tenant), 0, room - 1) or {}
  for _, id in ipairs(ids) do
    local since = tonumber(redis.call('ZSCORE', unfinished_key(model), id) or '0')
    if since <= before_ms and redis.call('HEXISTS', task_key(id), 'way') == 0 then waiting[#waiting + 1] = id end
  end
end
if #waiting == 0 or redis.call('EXISTS', queue_key(model)) == 0 then return {} end
local held, found = redis.call('XPENDING', queue_key(model), GROUP, '-', '+', 10000), {}
for i = #held, 1, -1 do
  local turn = held[i][1]
  local id = redis.call('HGET', bound_key(model), turn)
  local for_whom = waiting[#found + 1]
  if not for_whom then break end
  if id and line_of(model, redis.call('HGET', task_key(id), 'place')) ~= model then
    redis.call('HSET', task_key(for_whom), 'way', turn)
    found[#found + 1] = {turn, id}
  end
end
return found
