#!/usr/bin/env bash
# The calls of the older interface, word for word. New are the address and the keys: KEY for callers, TURNOUT_JOIN_TOKEN
# for the worker. Prints one line of JSON for each answer.
set -euo pipefail
curl() { command curl --fail-with-body --silent --show-error --max-time 120 -H "Authorization: Bearer $KEY" "$@" && echo; }

export MANAGER_URL=${MANAGER_URL:-http://127.0.0.1:8000}
curl "$MANAGER_URL/health"

# A worker joins by the names that it had.
python -m turnout.worker --worker-id gpu-box-1 --manager-url "$MANAGER_URL" --port "$WORKER_PORT" --state-dir "$WORKER_STATE" 2>"$WORKER_STATE.log" &
trap 'kill $!; wait' EXIT
until curl "$MANAGER_URL/workers" | tee /dev/stderr | grep -q '"gpu-box-1".*"standing":"alive"'; do sleep 0.2; done 2>/dev/null
curl "$MANAGER_URL/workers"

# A chat model, and what is known of it.
curl "$MANAGER_URL/v1/models/register" -H 'Content-Type: application/json' -d '{
  "alias": "qwen", "model_name": "Qwen/Qwen3-8B", "max_model_len": 4096, "gpu_memory_utilization": 0.5}'
curl "$MANAGER_URL/v1/models/qwen"
curl "$MANAGER_URL/v1/models"
curl "$MANAGER_URL/v1/chat/completions" -H 'Content-Type: application/json' -d '{
  "model": "smollm2", "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4}'

# A video, under the caller's own id.
curl "$MANAGER_URL/generate" -H 'Content-Type: application/json' -d '{
  "task_id": "go-task-0001", "prompt": "a red square moving to the right", "sampling_steps": 2}'
curl --no-buffer "$MANAGER_URL/v1/videos/go-task-0001/events" >/dev/null # until it has ended
curl "$MANAGER_URL/v1/videos/go-task-0001"
curl "$MANAGER_URL/v1/videos/go-task-0001/content" --output "$WORKER_STATE.mp4"
