-- Adds a person; returns her id, or that of the one who has the subject already.
local id, doc, at, subject = unpack(ARGV)
return store_person(id, doc, at, subject)
