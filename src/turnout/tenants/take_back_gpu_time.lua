-- Takes a worker's GPU time of these months out of the tables again. Returns (model, ms)… of what was taken back.
local worker = unpack(ARGV, 1, 1)

local function take(key, field, ms)
  if (tonumber(redis.call('HGET', key, field)) or 0) <= ms then
    redis.call('HDEL', key, field)
  else
    redis.call('HINCRBY', key, field, string.format('%.0f', -ms))
  end
end

local taken, order = {}, {}
for i = 2, #ARGV do
  local own = gpu_booked_key(ARGV[i], worker)
  local booked = redis.call('HGETALL', own)
  for n = 1, #booked, 2 do
    local day, state_and_kind, model = string.match(booked[n], '^([^:]*):([^:]*:[^:]*:)(.*)$')
    local ms = tonumber(booked[n + 1]) or 0
    if day and ms > 0 then
      take(gpu_models_key(day), state_and_kind .. model, ms)
      take(gpu_workers_key(day), state_and_kind .. worker, ms)
      if not taken[model] then order[#order + 1] = model end
      taken[model] = (taken[model] or 0) + ms
    end
  end
  redis.call('DEL', own)
end
local answer = {}
for _, model in ipairs(order) do
  answer[#answer + 1] = model
  answer[#answer + 1] = string.format('%.0f', taken[model])
end
if #answer > 0 then next_number(gpu_taken_back_key()) end
return answer
