-- Writes a conversation that follows on `revision`; 0: one that is not there, if there are fewer than `most`.
-- Returns 1, 0 if another revision is stored, or -1 if there are as many.
local owner, id, revision, doc, most = unpack(ARGV)
local kept = conversations_key(owner)
local before = redis.call('HGET', kept, id)
local readable, found = pcall(cjson.decode, before or '{}')
local stored = readable and type(found) == 'table' and tonumber(found.revision) or 0
if stored ~= tonumber(revision) then return 0 end
if not before and redis.call('HLEN', kept) >= tonumber(most) then return -1 end
redis.call('HSET', kept, id, doc)
return 1
