"""Every metric of the service, declared once. Pure.

Whoever has the values hands them to the metric of this table, which writes the text of `/metrics`. `./dev metrics` writes the table of
docs/metrics.md from it.
"""

from turnout.telemetry.exposition import HistogramMetric, Metric, NumberMetric

_HTTP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_CHAT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_VIDEO_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
_RATIOS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_START_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)


def _number(name: str, text: str, *labels: str) -> NumberMetric:
    return NumberMetric(name, text, labels)


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> HistogramMetric:
    return HistogramMetric(name, text, labels, bounds)


# fmt: off
# HTTP and events, at this gateway
HTTP_REQUESTS = _number("turnout_http_requests_total", "HTTP requests that this gateway answered, by route and status.", "method", "route", "status")
HTTP_SECONDS = _histogram("turnout_http_request_duration_seconds", "Time from an HTTP request to the start of its answer.", _HTTP_SECONDS, "method", "route")
EVENT_LAG = _histogram("turnout_event_lag_seconds", "Time from an event of a task until this gateway passed it on to those who watch.", _HTTP_SECONDS)
EVENTS_BEHIND = _number("turnout_events_behind_seconds", "Time between the newest event in Redis and the last that this gateway passed on.")
EVENT_WATCHERS = _number("turnout_event_watchers", "Clients that watch events of tasks at this gateway.")

# Chat, at this gateway
CHAT_REQUESTS = _number("turnout_chat_requests_total", "Chat requests that ended, by status code or what ended them.", "model", "outcome")
CHAT_DIRECT = _number("turnout_chat_direct_requests_total", "Chat requests that went to the engine directly, past its worker's proxy.", "model")
CHAT_TOKENS = _number("turnout_chat_tokens_total", "Tokens of chats by the engines' own count, or estimated where they did not come to it.", "model", "kind")
CHAT_FIRST_BYTE = _histogram("turnout_chat_first_byte_seconds", "Time from a chat request to the first byte of its answer; with streaming, to the first token. start=cold: no replica was ready.", _CHAT_SECONDS, "model", "start")
CHAT_SECONDS = _histogram("turnout_chat_seconds", "Time from a chat request to the end of its answer.", _CHAT_SECONDS, "model")
CHAT_INTER_TOKEN = _histogram("turnout_chat_inter_token_seconds", "Mean time between two tokens of a streamed answer.", _TOKEN_SECONDS, "model")
CHAT_REFUSED = _number("turnout_chat_refused_total", "Chat requests that got no replica, by the code of the error.", "code")
CHAT_WAITING = _number("turnout_chat_waiting", "Chat requests that wait for a replica at this gateway.", "model")
CHAT_RUNNING = _number("turnout_chat_running", "Chat requests that a replica is answering for this gateway.", "model")

# Connections, disk and loops of this gateway
BUILD_INFO = _number("turnout_build_info", "Always 1; the label says which version this gateway runs.", "version")
CONNECTIONS = _number("turnout_connections", "Open connections of this gateway: those of clients, and idle ones to replicas.", "side")
CONNECTIONS_LIMIT = _number("turnout_connections_limit", "How many connections clients may have to this gateway together.")
REQUEST_BODY_BYTES = _number("turnout_request_body_bytes", "Memory that the bodies of requests in flight take at this gateway.")
DISK_BYTES = _number("turnout_disk_bytes", "Size of the disk with this gateway's state directory, and of the one with objects if they are in a directory.", "of")
DISK_FREE_BYTES = _number("turnout_disk_free_bytes", "Free space on the disk with this gateway's state directory, and on the one with objects.", "of")
CERTIFICATE_EXPIRY = _number("turnout_certificate_expiry_timestamp_seconds", "Unix time at which the certificate of this gateway (tls_cert) expires.")
LOOP_UP = _number("turnout_loop_up", "1 if all background loops of this name run in this gateway, else 0.", "loop")
LOOP_RESTARTS = _number("turnout_loop_restarts_total", "How often a background loop of this gateway died and was started again.", "loop")
LOG_LINES_DROPPED = _number("turnout_log_lines_dropped_total", "Log lines of this gateway that could not be written.")
SPANS_DROPPED = _number("turnout_trace_spans_dropped_total", "Spans of traces that the receiver (traces_endpoint) did not take.")

# Redis and the manager
REDIS_UP = _number("turnout_redis_up", "1 if Redis answered this scrape within half a second, else 0.")
LOOK_AGE = _number("turnout_look_age_seconds", "Age of what this scrape tells: 0 if it was read for it, more while Redis does not answer.", "of")
REDIS_PING = _number("turnout_redis_ping_seconds", "How long Redis took to answer a PING of this gateway.")
REDIS_MEMORY_BYTES = _number("turnout_redis_memory_bytes", "Memory that Redis holds.")
REDIS_MEMORY_LIMIT_BYTES = _number("turnout_redis_memory_limit_bytes", "Memory that Redis may hold: maxmemory, or that of its machine.")
REDIS_CLIENTS = _number("turnout_redis_clients", "Connections that Redis has open.")
MANAGER_UP = _number("turnout_manager_up", "1 if a manager is at work, else 0.")
MANAGER_LOOP_UP = _number("turnout_manager_loop_up", "1 if this background loop of the manager runs, else 0.", "loop")

# Tasks, videos and gangs
TASKS = _number("turnout_tasks", "Tasks that have not ended, by state.", "state")
TASKS_ENDED = _number("turnout_tasks_ended_total", "Tasks that ended, by the state in which they did.", "state")
DEAD_RECORDS = _number("turnout_dead_records", "Records in Redis that could not be read and were set aside (turnout dead list).")
QUEUE_LENGTH = _number("turnout_queue_length", "Queued and running tasks of a model.", "model")
QUEUE_RUNNING = _number("turnout_queue_running", "Running tasks of a model.", "model")
QUEUE_OLDEST = _number("turnout_queue_oldest_seconds", "Age of a model's oldest task that has not ended.", "model")
VIDEO_STAGE_SECONDS = _histogram("turnout_video_stage_seconds", "Time of each stage of a video, of attempts that ended; step is one denoise step.", _VIDEO_SECONDS, "model", "stage")
VIDEO_SECONDS = _histogram("turnout_video_seconds", "Time from the submission of a video to its end.", _VIDEO_SECONDS, "model")
VIDEO_ESTIMATE_RATIO = _histogram("turnout_video_estimate_ratio", "Time that a video took, divided by the time that was first estimated while it was rendered.", _RATIOS, "model")
GANG_RESTARTS = _number("turnout_gang_restarts_total", "Attempts that ended without a result; counted=false were drained.", "model", "counted")
GANGS = _number("turnout_gangs", "Gangs that are awake, by whether all their ranks are there (formed) or not yet (starting).", "model", "state")
GANG_NODES = _number("turnout_gang_nodes", "Machines that a model's gangs are on.", "model")
WEBHOOK_TRIES = _number("turnout_webhook_tries_total", "Webhooks that were sent, by what came of it: delivered, again (a later try follows), given_up.", "outcome")
WEBHOOKS_WAITING = _number("turnout_webhooks_waiting", "Webhooks that are yet to be delivered.")

# Models and their replicas
MODEL_STATE = _number("turnout_model_state", "1 for the state that a model is in, and its cause where the state alone does not tell.", "model", "state", "cause")
MODEL_SHARE = _number("turnout_model_share", "Part of what is asked of a model's name that a version of it gets.", "model", "version_of")
REPLICAS = _number("turnout_replicas", "Replicas of a model, by state.", "model", "state")
COLD_STARTS = _number("turnout_cold_starts_total", "Replicas that were started or woken from sleep, and why.", "model", "kind", "cause")
REPLICA_START_SECONDS = _histogram("turnout_replica_start_seconds", "Time from the order to start or wake a replica until it was ready.", _START_SECONDS, "model", "kind")
REPLICA_START_RATIO = _histogram("turnout_replica_start_ratio", "Time that a replica took to start or wake, divided by the time that its model declares (start_s) or took before.", _RATIOS, "model", "kind")
EVICTIONS = _number("turnout_evictions_total", "Replicas of a model that had to make room for another model.", "model")
MODEL_FAILURES = _number("turnout_model_failures_total", "Times that a model's replica failed to start, or died.", "model")
REPLICA_BUSY = _number("turnout_replica_busy", "Requests or tasks that a replica works on.", "worker", "model", "replica")
REPLICA_GPU = _number("turnout_replica_gpu", "1 for each GPU that a replica has: join with it to see a GPU's figures by replica.", "worker", "gpu", "model", "replica")
ENGINE_KV_CACHE = _number("turnout_engine_kv_cache_ratio", "Part of its KV cache that a replica's engine has in use, as it tells.", "worker", "model", "replica")
ENGINE_PREFIX_TOKENS = _number("turnout_engine_prefix_cache_tokens_total", "Tokens of prompts that a replica's engine looked up in its prefix cache.", "worker", "model", "replica")
ENGINE_PREFIX_HIT_TOKENS = _number("turnout_engine_prefix_cache_hit_tokens_total", "Tokens of prompts that a replica's engine found in its prefix cache.", "worker", "model", "replica")
ENGINE_RUNNING = _number("turnout_engine_running", "Requests that a replica's engine works on, as it tells.", "worker", "model", "replica")
ENGINE_WAITING = _number("turnout_engine_waiting", "Requests that a replica's engine holds in its own queue, as it tells.", "worker", "model", "replica")

# Cost
GPU_SECONDS = _number("turnout_gpu_seconds_total", "GPU time by what the GPUs did for a model: busy, loading, idle, asleep; free is for none.", "model", "kind", "state")
GPU_HOUR_PRICE = _number("turnout_gpu_hour_price", "Price of an hour of a GPU of this kind (gpu_prices).", "kind")
BUDGETS = _number("turnout_budgets", "Tenants with a budget, by how they stand with it this month.", "level")

# Workers and their GPUs
WORKERS = _number("turnout_workers", "Workers, by whether their heartbeats arrive.", "standing")
WORKER_INFO = _number("turnout_worker_info", "Always 1; the label says which name a worker gave itself.", "worker", "name")
WORKER_HEARTBEAT_AGE = _number("turnout_worker_heartbeat_age_seconds", "Time since a worker's last heartbeat.", "worker")
WORKER_MEMORY_BYTES = _number("turnout_worker_memory_bytes", "Memory of a worker's machine that replicas may take.", "worker")
WORKER_MEMORY_FREE_BYTES = _number("turnout_worker_memory_free_bytes", "Memory of a worker's machine that is free.", "worker")
WORKER_CPUS = _number("turnout_worker_cpus", "Processors of a worker's machine that it may use.", "worker")
WORKER_CPU_SECONDS = _number("turnout_worker_cpu_seconds_total", "Time for which the processors of a worker's machine computed since it was started.", "worker")
WORKER_RECEIVED_BYTES = _number("turnout_worker_network_received_bytes_total", "Bytes that a worker's machine received since it was started, loopback aside.", "worker")
WORKER_SENT_BYTES = _number("turnout_worker_network_sent_bytes_total", "Bytes that a worker's machine sent since it was started, loopback aside.", "worker")
WORKER_DISK_BYTES = _number("turnout_worker_disk_bytes", "Size of the disk with a worker's state directory.", "worker")
WORKER_DISK_FREE_BYTES = _number("turnout_worker_disk_free_bytes", "Free space on the disk with a worker's state directory.", "worker")
WORKER_GPU_SECONDS = _number("turnout_worker_gpu_seconds_total", "GPU time of a worker by what its GPUs did, since it started.", "worker", "kind", "state")
GPU_INFO = _number("turnout_gpu_info", "Always 1; the label says what kind of GPU it is.", "worker", "gpu", "name")
GPU_MEMORY_BYTES = _number("turnout_gpu_memory_bytes", "Memory of a GPU.", "worker", "gpu")
GPU_MEMORY_FREE_BYTES = _number("turnout_gpu_memory_free_bytes", "Memory of a GPU that no process holds.", "worker", "gpu")
GPU_UTILIZATION_RATIO = _number("turnout_gpu_utilization_ratio", "Part of the time in which a GPU computed.", "worker", "gpu")
GPU_POWER_WATTS = _number("turnout_gpu_power_watts", "Power that a GPU draws.", "worker", "gpu")
GPU_TEMPERATURE_CELSIUS = _number("turnout_gpu_temperature_celsius", "Temperature of a GPU.", "worker", "gpu")
GPU_ECC_ERRORS = _number("turnout_gpu_ecc_errors_total", "Uncorrected memory errors of a GPU since its driver was loaded.", "worker", "gpu")
GPU_XID_ERRORS = _number("turnout_gpu_xid_errors_total", "Errors of a GPU that its driver reported since the worker started.", "worker", "gpu")
# fmt: on

METRICS: tuple[Metric, ...] = tuple(
    sorted(
        (each for each in tuple(globals().values()) if isinstance(each, Metric)), key=lambda each: each.name
    )
)
