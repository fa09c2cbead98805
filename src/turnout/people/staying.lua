-- Whether something may still be stored for a person: she is there, and not disabled. That is written first when she goes, so what she
-- was just asking for is not left behind.
local function person_stays(id)
  local doc = redis.call('HGET', person_key(id), 'doc')
  if not doc then return false end
  local readable, found = pcall(cjson.decode, doc)
  return not (readable and type(found) == 'table' and type(found.disabled_at) == 'number')
end

-- The same for the owner of conversations and presets, who may be no person.
local function owner_stays(owner)
  local person = string.match(owner, '^person%-(.*)$')
  return not person or person_stays(person)
end

