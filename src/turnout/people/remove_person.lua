-- Removes a person with her keys, and ends her sessions. Returns 1, or 0 if she was gone.
-- Then come the days of which it is kept what she asked for.
local id, subject = unpack(ARGV, 1, 2)
for _, session in ipairs(redis.call('ZRANGE', sessions_of_key(id), 0, -1)) do redis.call('DEL', session_key(session)) end
redis.call('DEL', sessions_of_key(id))
if subject ~= '' and redis.call('GET', person_by_key(subject)) == id then redis.call('DEL', person_by_key(subject)) end
redis.call('ZREM', people_key(), id)
redis.call('ZREM', guests_key(), id)
for i = 3, #ARGV do redis.call('DEL', allowance_key(id, ARGV[i])) end
return redis.call('DEL', person_key(id))
