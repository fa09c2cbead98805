"""The service on Ray in a few lines: its Serve application, its manager actor, and a worker that joins over HTTP.

python ray_services.py turnout.yaml 8000        (pip install 'turnout[local,ray]'; RAY_ADDRESS names a cluster, else one starts here)

The file names what all nodes reach: `redis_url`, and `blobs` (S3, or a folder with `blobs_shared: true`). Serve runs three kinds of
deployments: `APIEntrypoint` (the gateway), `Manager`, which keeps the manager's actor, and `VideoGenerator-{model}-{slot}` for each gang.
Chat engines run on workers, which need not be in the cluster.
"""

import os
import subprocess
import sys

import httpx
import ray
from ray import serve

from turnout.serve import app


def new_key(config: str, role: str) -> str:
    words = ["turnout", "keys", "create", "--direct", "--role", role, "--config", config]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(config: str, port: int) -> None:
    ray.init(namespace="turnout", log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app({"config": os.path.abspath(config), "ingress": True}), name="turnout")
    manager = ray.get_actor("manager", namespace="turnout")
    print("the manager runs as process", ray.get(manager.health.remote()).pid, flush=True)

    url = f"http://127.0.0.1:{port}"
    joining = {**os.environ, "TURNOUT_JOIN_TOKEN": new_key(config, "worker")}
    worker = subprocess.Popen(["turnout", "worker", "--join", url, "--config", config], env=joining)
    headers = {"Authorization": f"Bearer {new_key(config, 'user')}"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=300) as client:
            video = client.post("/v1/videos", json={"prompt": "a red square moving to the right"})
            with client.stream("GET", f"/v1/videos/{video.raise_for_status().json()['id']}/events") as events:
                for line in events.iter_lines():
                    if line.startswith("event: "):
                        print(line, flush=True)
            print("gangs:", *ray.get(manager.gangs.remote()))
            said = {"model": "smollm2", "messages": [{"role": "user", "content": "Say hello."}]}
            answer = client.post("/v1/chat/completions", json=said).raise_for_status().json()
            print(answer["choices"][0]["message"]["content"])
    finally:
        worker.terminate()
        worker.wait(60)
        subprocess.run(["turnout", "down", "--ray", "--config", config], check=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
