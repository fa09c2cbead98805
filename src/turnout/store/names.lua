-- Stands before every script: the names of keys. KEYS[1] is the prefix.
-- The names are those of key_names.py, which says what each key holds.
local P = KEYS[1]
local GROUP = 'gangs'
local MAX_NEWS = 10000
local MAX_EVENTS = 100000  -- of the stream that gateways tail; the task's own stream is kept apart
local MAX_TASK_EVENTS = 5000
local GPU_WORK_MS = 86400000
local GPU_BOOKED_MS = 63 * 86400000  -- this month and the last one

local function task_key(id) return P .. ':task:' .. id end
local function task_events_key(id) return P .. ':events:' .. id end
local function all_events_key() return P .. ':events' end
local function tasks_of_key(tenant) return P .. ':of:' .. tenant end
local function pulls_key() return P .. ':pulls' end
local function presets_key(owner) return P .. ':presets:' .. owner end
local function idempotency_key(tenant, key) return P .. ':idem:' .. tenant .. ':' .. key end
local function submissions_key(tenant, minute) return P .. ':rate:' .. tenant .. ':' .. minute end
local function counts_key(tenant) return P .. ':counts:' .. tenant end
local function totals_key() return P .. ':totals' end
local function places_key() return P .. ':places' end
local function queues_key() return P .. ':queues' end
local function queue_key(model) return P .. ':queue:' .. model end
local function bound_key(model) return P .. ':bound:' .. model end
local function tenants_key(model) return P .. ':tenants:' .. model end
local function waiting_key(model, tenant) return P .. ':waiting:' .. model .. ':' .. tenant end
local function served_key(model) return P .. ':served:' .. model end
local function clock_key(model) return P .. ':clock:' .. model end
local function unfinished_key(model) return P .. ':unfinished:' .. model end
local function paces_key() return P .. ':paces' end
local function closed_key(gang) return P .. ':closed:' .. gang end
local function claiming_key(gang) return P .. ':claiming:' .. gang end
local function outbox_key() return P .. ':outbox' end
local function webhook_secrets_key() return P .. ':webhook_secrets' end
local function webhook_tries_key(id) return P .. ':webhook:' .. id end
local function chat_account_key(tenant) return P .. ':chat:account:' .. tenant end
local function chat_permits_key(tenant) return P .. ':chat:slots:' .. tenant end
local function usage_of_key(day, tenant) return P .. ':usage:of:' .. day .. ':' .. tenant end
local function usage_day_key(day) return P .. ':usage:day:' .. day end
local function gpu_models_key(day) return P .. ':usage:gpu:' .. day end
local function gpu_workers_key(day) return P .. ':usage:gpu:' .. day .. ':workers' end
local function gpu_booked_key(month, worker) return P .. ':usage:gpu:' .. month .. ':of:' .. worker end
local function gpu_undivided_key() return P .. ':usage:gpu:undivided' end
local function gpu_work_key() return P .. ':usage:gpu:work' end
local function gpu_users_key() return P .. ':usage:gpu:users' end
local function gpu_divisions_key() return P .. ':usage:gpu:divisions' end
local function gpu_taken_back_key() return P .. ':usage:gpu:taken_back' end
local function session_key(session) return P .. ':session:' .. session end
local function sessions_of_key(root) return P .. ':sessions:' .. root end
local function people_key() return P .. ':people' end
local function guests_key() return P .. ':guests' end
local function person_key(person) return P .. ':person:' .. person end
local function person_by_key(subject) return P .. ':person_by:' .. subject end
local function invites_key() return P .. ':invites' end
local function invite_uses_key() return P .. ':invite_uses' end
local function allowance_key(account, day) return P .. ':allowance:' .. day .. ':' .. account end
local function conversations_key(owner) return P .. ':conversations:' .. owner end
local function usage_batch_key(batch) return P .. ':usage:batch:' .. batch end
local function genesis_key() return P .. ':genesis' end
local function canary_key() return P .. ':canary' end
local function mutex_key(name) return P .. ':mutex:' .. name end
local function worker_key(worker) return P .. ':fleet:worker:' .. worker end
local function heartbeat_key(worker) return P .. ':fleet:beat:' .. worker end
local function orders_key(worker) return P .. ':fleet:orders:' .. worker end
local function news_key() return P .. ':fleet:news' end
local function changes_key() return P .. ':fleet:changes' end

-- Adds to a count; one that is no number begins anew, so that it stops nothing.
local function count(key, field, by)
  local done = redis.pcall('HINCRBY', key, field, by)
  if type(done) == 'table' and done.err then redis.call('HSET', key, field, math.max(0, tonumber(by) or 0)) end
end

-- The next number of a counter; one that is no number goes on at the time in ms, which is above what it can have counted.
local function next_number(key)
  local done = redis.pcall('INCR', key)
  if type(done) == 'number' then return done end
  local time = redis.call('TIME')
  local number = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('SET', key, string.format('%.0f', number))
  return number
end
