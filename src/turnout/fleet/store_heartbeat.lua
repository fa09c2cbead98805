-- Stores a worker's heartbeat under a number that grows. Returns the number, or '0' when the worker is unknown
-- or was evicted.
-- The number follows the clock, so that it still grows after Redis lost everything.
local worker, doc, heartbeat_ms, worker_ms = unpack(ARGV)
local doc_and_evicted = redis.call('HMGET', worker_key(worker), 'doc', 'evicted')
if not doc_and_evicted[1] or doc_and_evicted[2] then return '0' end
local time = redis.call('TIME')
local seq = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('HGET', heartbeat_key(worker), 'seq') or '0') or 0
if seq <= last then seq = last + 1 end
redis.call('HSET', heartbeat_key(worker), 'seq', string.format('%.0f', seq), 'doc', doc)
redis.call('PEXPIRE', heartbeat_key(worker), heartbeat_ms)
redis.call('PEXPIRE', worker_key(worker), worker_ms)
redis.call('PEXPIRE', orders_key(worker), worker_ms)
redis.call('XADD', news_key(), 'MAXLEN', '~', MAX_NEWS, '*', 'w', worker)
return string.format('%.0f', seq)
