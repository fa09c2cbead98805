-- Binds the next turn to the task that is next by tenant, priority and age. Returns its id, nothing if nobody could get one, or 0
-- if only this gang gets none.
-- The task itself is written by the commit that follows. If the claimer dies before that, the turn's lease runs
-- out like any other. A gang that is `loading` gets one only while no other gang is at work on the model, and only a task
-- that has waited for `loading_wait_ms` (tasks/fairness_rules).
-- With a `call` it gets one only while no later call claims for the gang.
local model, gang, max_running, loading, loading_wait_ms, call = unpack(ARGV)
local function left_to_others(id)
  if loading ~= '1' then return false end
  ensure_group(queue_key(model))
  if redis.call('XPENDING', queue_key(model), GROUP)[1] > 0 then return true end
  local time, since = redis.call('TIME'), tonumber(redis.call('ZSCORE', unfinished_key(model), id) or '0')
  return time[1] * 1000 + time[2] / 1000 - since < tonumber(loading_wait_ms)
end
if redis.call('EXISTS', closed_key(gang)) == 1 then return 0 end
if call ~= '' and redis.call('GET', claiming_key(gang)) ~= call then return 0 end

-- Gives the next task of a line to the gang, as `fairness_rules.FairQueue` does.
local function claim_in(line)
  local tenants = redis.call('ZRANGE', tenants_key(line), 0, -1, 'WITHSCORES')
  for i = 1, #tenants, 2 do
    local tenant, tag = tenants[i], tonumber(tenants[i + 1])
    local running = tonumber(redis.call('HGET', counts_key(tenant), 'running') or '0') or 0
    local id = redis.call('ZRANGE', waiting_key(line, tenant), 0, 0)[1]
    if not id then  -- its line is gone: someone deleted it, or it was damaged
      redis.call('ZREM', tenants_key(line), tenant)
    elseif running < tonumber(max_running) then
      if left_to_others(id) then return 0 end
      local queue = queue_key(model)
      ensure_group(queue)
      local read = redis.call('XREADGROUP', 'GROUP', GROUP, gang, 'COUNT', 1, 'STREAMS', queue, '>')
      if not read then  -- a turn was lost (someone deleted the stream): the waiting task is what counts
        add_turn(model)
        read = redis.call('XREADGROUP', 'GROUP', GROUP, gang, 'COUNT', 1, 'STREAMS', queue, '>')
      end
      local turn = read[1][2][1][1]
      stop_waiting(line, tenant, id)
      end_turn(line, tenant, tag)
      for j = 1, i - 1, 2 do  -- to be passed over earns no credit
        redis.call('ZADD', tenants_key(line), 'XX', tag, tenants[j])
      end
      if redis.call('EXISTS', task_key(id)) == 0 then  -- it expired while waiting
        drop_turn(model, turn)
        redis.call('ZREM', unfinished_key(model), id)
        return false
      end
      redis.call('HSET', bound_key(model), turn, id)
      redis.call('HSET', task_key(id), 'turn', turn, 'gang', gang)
      redis.call('HDEL', task_key(id), 'way')
      count(counts_key(tenant), 'running', 1)
      return id
    end
  end
end

local found = claim_in(model)
if found == nil then found = claim_in(guests_line(model)) end
return found or false
