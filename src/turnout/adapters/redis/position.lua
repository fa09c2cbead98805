-- What is needed to say how many tasks are served before one: its place in its tenant's line, then for every
-- line its tenant, tag and length. Empty when the task is not waiting.
local model, tenant, id = ARGV[1], ARGV[2], ARGV[3]
local place = redis.call('ZRANK', line_key(model, tenant), id)
if not place then return {} end
local found = {place}
local lines = redis.call('ZRANGE', lines_key(model), 0, -1, 'WITHSCORES')
for i = 1, #lines, 2 do
  found[#found + 1] = lines[i]
  found[#found + 1] = lines[i + 1]
  found[#found + 1] = redis.call('ZCARD', line_key(model, lines[i]))
end
return found
