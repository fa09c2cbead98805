-- Writes a conversation that follows on `revision`; 0: one that is not there, if there are fewer than `most`. With `bytes`, it and all
-- others have `together` at most.
-- Returns 1, 0 if another revision is stored, -1 if there are as many, -2 if they are as large, or -3 if their owner is gone.
local owner, id, revision, doc, most, bytes, together = unpack(ARGV)
local kept = conversations_key(owner)

local function number_in(stored, field)
  local readable, found = pcall(cjson.decode, stored or '{}')
  return readable and type(found) == 'table' and tonumber(found[field]) or 0
end

if not owner_stays(owner) then return -3 end
local before = redis.call('HGET', kept, id)
if number_in(before, 'revision') ~= tonumber(revision) then return 0 end
if not before and redis.call('HLEN', kept) >= tonumber(most) then return -1 end
if tonumber(bytes) > 0 then
  local all, others = redis.call('HGETALL', kept), 0
  for i = 1, #all, 2 do
    if all[i] ~= id then others = others + number_in(all[i + 1], 'bytes') end
  end
  if others + tonumber(bytes) > tonumber(together) then return -2 end
end
redis.call('HSET', kept, id, doc)
return 1
