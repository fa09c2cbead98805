-- Writes a pull. With `only_if` it must be in that state: what was cancelled meanwhile stays so. Returns 1, or 0.
local id, doc, only_if, most = unpack(ARGV)
local before = redis.call('HGET', pulls_key(), id)
if only_if ~= '' and (not before or cjson.decode(before).state ~= only_if) then return 0 end
if not before and redis.call('HLEN', pulls_key()) >= tonumber(most) then return 0 end
redis.call('HSET', pulls_key(), id, doc)
return 1
