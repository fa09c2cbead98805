-- The tasks whose lease ran out. Turns of tasks that are gone are dropped on the way. Returns task ids.
local model, lease_ms = unpack(ARGV)
local queue = queue_key(model)
if redis.call('EXISTS', queue) == 0 then return {} end
local turns = redis.call('XAUTOCLAIM', queue, GROUP, 'reaper', lease_ms, '0', 'COUNT', 100, 'JUSTID')[2]
local ids = {}
for _, turn in ipairs(turns) do
  local id = redis.call('HGET', bound_key(model), turn)
  if id and redis.call('HGET', task_key(id), 'turn') == turn then
    ids[#ids + 1] = id
  else
    drop_turn(model, turn)
  end
end
return ids
