-- Stores a new person. Who has a subject is found by it, and is there once: returns the id of the one that is there.
local function store_person(id, doc, at, subject)
  if subject ~= '' then
    local known = redis.call('GET', person_by_key(subject))
    if known and redis.call('HEXISTS', person_key(known), 'doc') == 1 then return known end
    redis.call('SET', person_by_key(subject), id)
  end
  redis.call('HSET', person_key(id), 'doc', doc, 'seen', at)
  redis.call('ZADD', people_key(), at, id)
  return id
end
