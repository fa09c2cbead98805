-- Uses an invite once and stores the person who came by it. Returns 1, or 0 when it was revoked or used up.
local invite, uses, id, doc, at = unpack(ARGV)
if redis.call('HEXISTS', invites_key(), invite) == 0 then return 0 end
if (tonumber(redis.call('HGET', invite_uses_key(), invite) or '0') or 0) >= tonumber(uses) then return 0 end
count(invite_uses_key(), invite, 1)
if id ~= '' then store_person(id, doc, at, '') end
return 1
