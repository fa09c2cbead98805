"""Odd JSON, forms and paths at every documented route, as a user and as an admin."""

import json
import random
from pathlib import Path
from typing import Any

from tests.conftest import Stores
from tests.fuzz.runner import altered, any_json, cases, check_answer, damaged, watched
from tests.gateways import Gateway, bearer, picture, running

from turnout.tenants.key_rules import Role

BODIES: list[Any] = [
    {
        "prompt": "x",
        "model": "wan-tiny-t2v",
        "size": "128x128",
        "seconds": "1",
        "guidance": [3, 4],
        "seed": 1,
    },
    {
        "prompt": "x",
        "frames": 9,
        "fps": 8,
        "steps": 2,
        "shift": 3.0,
        "negative_prompt": "y",
        "guidance": "3,4",
    },
    {"prompt": "x", "input_reference": {"image_url": "data:image/png;base64,AAAA"}},
    {"tenant": "acme", "role": "user", "name": "ci", "expires_in_s": 60},
    {"alias": "m", "engine": "llamacpp", "model_name": "builtin:smollm2", "memory_bytes": 1, "arguments": []},
    {"alias": "v", "engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"},
    {"draining": True},
    {"overlap_s": 1, "expires_in_s": 2},
]
PARTS = ("video_1", "..", "%00", "é", "a" * 200, "0", "wan-tiny-t2v", "m", "w-1")
TYPES = ("application/json", "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")


async def ask(
    gateway: Gateway, routes: list[tuple[str, str]], chance: random.Random, admin: dict[str, str]
) -> None:
    method, path = chance.choice(routes)
    while "{" in path:
        path = path[: path.index("{")] + chance.choice(PARTS) + path[path.index("}") + 1 :]
    headers = dict(admin) if chance.random() < 0.5 else {}
    query = {
        chance.choice(("after", "limit", "order", "start", "end", "tenant", "variant")): str(
            any_json(chance, 0)
        )
    }
    options: dict[str, Any] = {}
    if method in ("POST", "PUT", "PATCH"):
        body = altered(chance.choice(BODIES), chance)
        if isinstance(body, dict) and chance.random() < 0.3:
            fields = {
                str(name).encode(errors="replace").decode(): (None, str(value).encode(errors="replace"))
                for name, value in body.items()
            }
            if chance.random() < 0.5:
                fields["input_reference"] = ("a.png", damaged(picture(), chance))  # type: ignore[assignment]
            request = gateway.http.build_request(method, path, files=fields or {"x": (None, "y")})
            options["content"] = damaged(request.read(), chance) if chance.random() < 0.4 else request.read()
            headers["content-type"] = request.headers["content-type"]
        else:
            raw = json.dumps(body).encode()
            options["content"] = damaged(raw, chance) if chance.random() < 0.4 else raw
            headers["content-type"] = chance.choice(TYPES) if chance.random() < 0.1 else TYPES[0]
    if chance.random() < 0.2:
        options["params"] = query
    answer = await gateway.http.request(method, path, headers=headers, **options)
    check_answer(answer, (method, path))


async def test_fuzz_routes(stores: Stores, tmp_path: Path) -> None:
    limits: dict[str, Any] = {"limit_submits_per_minute": 10**6, "limit_waiting": 10**6}
    async with running(stores, tmp_path, **limits) as gateway:
        admin = bearer(await gateway.key(role=Role.ADMIN))
        documented = gateway.app.openapi()["paths"]
        routes = [
            (method.upper(), path)
            for path, methods in documented.items()
            for method in methods
            if not path.endswith("/events")  # a stream that does not end
        ]
        with watched():
            for chance in cases():
                await ask(gateway, routes, chance, admin)
        assert (await gateway.http.get("/v1/videos")).status_code == 200
        assert not any(gateway.inside.background.restarts().values()), "no loop died"
