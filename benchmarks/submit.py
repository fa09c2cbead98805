"""Submissions a second and their latency over HTTP, beside the plain XADD rate of the same Redis."""

from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.figures import Table, percentile, say
from benchmarks.load import Run, Target, http_length, http_request, redis_command, redis_length
from benchmarks.machine import Pressure
from benchmarks.service import MODEL, Service, front, of_checkout

CONNECTIONS = (1, 8, 32)
ROUNDS = 3
CREATE = "POST /v1/videos"
SECONDS = {"XADD": 1.0, CREATE: 2.0}
OTHER_SECONDS = 1.0
BODY = (
    b'{"model":"%b","prompt":"a red ball rolling to the right","size":"128x128","frames":17,"seed":7}'
    % MODEL.encode()
)


async def measure(beside: Path | None = None) -> Table:
    """Submissions over HTTP beside plain XADD. `beside` is another checkout, whose gateway has a Redis of its own."""
    table = Table(
        "submit: closed loops, one request under way on each connection",
        (
            "request",
            "connections",
            "per s",
            "of XADD",
            "p50 ms",
            "p99 ms",
            "gateway CPU µs",
            "redis CPU µs",
            "client CPU share",
        ),
    )
    pressure = Pressure()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(front())
        targets = {name: (target, service) for name, target in _targets(service).items()}
        if beside is not None:
            other = await stack.enter_async_context(front(environ=of_checkout(beside)))
            targets[f"{CREATE}, {beside.name}"] = (_targets(other)[CREATE], other)
        for name, (target, _) in targets.items():
            if name.startswith(CREATE):
                await target.run(8, 1.0, {})  # first requests load scripts and fill caches
        for connections in CONNECTIONS:
            runs: dict[str, list[Run]] = {name: [] for name in targets}
            for number in range(ROUNDS):  # in turns, so that a noisy neighbour hits all of them alike
                for name, (target, asked) in targets.items():
                    seconds = SECONDS.get(name.partition(",")[0], OTHER_SECONDS)
                    runs[name].append(await target.run(connections, seconds, asked.parts))
                say(f"{connections} connections, round {number + 1} of {ROUNDS}")
            plain = _rate(runs["XADD"])
            for name, found in runs.items():
                table.rows.append(_row(name, connections, found, plain))
    table.notes = [
        "XADD: the same client on the same socket as the gateway's, a payload as long as the submission's body.",
        "GET /health: the gateway with nothing to do, so what HTTP alone costs.",
        f"CPU µs: what a request cost that process. {ROUNDS} rounds in turns; every answer counts.",
        pressure.note(),
    ]
    return table


def _targets(service: Service) -> dict[str, Target]:
    http = ("127.0.0.1", service.port)
    redis: Path = service.redis_socket
    auth = redis_command([b"AUTH", service.redis_password.encode()])
    xadd = redis_command([b"XADD", b"benchmark", b"MAXLEN", b"~", b"100000", b"*", b"e", BODY])
    create = http_request("POST", "/v1/videos", service.port, service.api_key, BODY)
    health = http_request("GET", "/health", service.port, service.api_key)
    return {
        "XADD": Target(redis, xadd, redis_length, auth),
        "GET /health": Target(http, health, http_length),
        CREATE: Target(http, create, http_length),
    }


def _rate(runs: list[Run]) -> float:
    return sum(len(r.latencies_s) for r in runs) / sum(r.seconds for r in runs)


def _row(name: str, connections: int, runs: list[Run], plain: float) -> tuple[str | int | float | None, ...]:
    latencies = [one for r in runs for one in r.latencies_s]
    gateway, redis = (
        sum(r.cpu_s[part] for r in runs) / len(latencies) * 1e6 for part in ("gateway", "redis")
    )
    return (
        name,
        connections,
        _rate(runs),
        _rate(runs) / plain,
        percentile(latencies, 0.5) * 1e3,
        percentile(latencies, 0.99) * 1e3,
        None if name == "XADD" else gateway,
        None if name == "GET /health" else redis,
        sum(r.client_cpu_s for r in runs) / sum(r.seconds for r in runs),
    )
