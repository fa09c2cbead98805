-- Stores a worker's heartbeat under a number that grows. Returns the number, or 0 when the worker is unknown.
-- The number follows the clock, so that it still grows after Redis lost everything.
local P = KEYS[1]
local id, doc, beat_ms, worker_ms, max_news = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local worker, beat = P .. ':fleet:worker:' .. id, P .. ':fleet:beat:' .. id
if redis.call('EXISTS', worker) == 0 then return 0 end
local time = redis.call('TIME')
local seq = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('HGET', beat, 'seq') or '0')
if seq <= last then seq = last + 1 end
redis.call('HSET', beat, 'seq', string.format('%.0f', seq), 'doc', doc)
redis.call('PEXPIRE', beat, beat_ms)
redis.call('PEXPIRE', worker, worker_ms)
redis.call('PEXPIRE', P .. ':fleet:orders:' .. id, worker_ms)
redis.call('XADD', P .. ':fleet:news', 'MAXLEN', '~', max_news, '*', 'w', id)
return string.format('%.0f', seq)
