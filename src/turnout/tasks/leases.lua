-- The claimed turns with their tasks: {turn, task, renewals}. Turns of tasks that are gone are dropped.
local model = unpack(ARGV)
local queue = queue_key(model)
if redis.call('EXISTS', queue) == 0 then return {} end
local held = {}
for _, entry in ipairs(redis.call('XPENDING', queue, GROUP, '-', '+', 10000)) do
  local turn, _, _, renewals = unpack(entry)
  local id = redis.call('HGET', bound_key(model), turn)
  if id and redis.call('HGET', task_key(id), 'turn') == turn then
    held[#held + 1] = {turn, id, renewals}
  else
    drop_turn(model, turn)
  end
end
return held
