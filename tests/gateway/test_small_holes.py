"""Single holes that an audit found, each closed where its rule lives."""

import pytest
from tests.gateway.conftest import Gateway, bearer

from turnout.domain.keys import Role


@pytest.mark.parametrize("written", ["Bearer  {}", "Bearer {} ", "Bearer \t{}", "Bearer {}\t"])
async def test_a_key_with_blanks_around_it_is_another_key(gateway: Gateway, written: str) -> None:
    headers = {"authorization": written.format(gateway.token)}
    answer = await gateway.http.get("/v1/videos", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_users_do_not_see_where_weights_lie(gateway: Gateway) -> None:
    admin = bearer(await gateway.key(role=Role.ADMIN))
    for path in ("/v1/models", "/v1/models/t2v-big"):
        assert "/weights/t2v" not in (await gateway.http.get(path)).text
        assert "/weights/t2v" in (await gateway.http.get(path, headers=admin)).text
    assert "builtin:wan-tiny-t2v" in (await gateway.http.get("/v1/models")).text


async def test_a_users_key_without_a_tenant_has_one_of_its_own(gateway: Gateway) -> None:
    admin = bearer(await gateway.key(tenant="default", role=Role.ADMIN))
    made = [(await gateway.http.post("/v1/keys", json={}, headers=admin)).json() for _ in range(2)]
    assert len({key["tenant"] for key in made} | {"default"}) == 3
    worker = (await gateway.http.post("/v1/keys", json={"role": "worker"}, headers=admin)).json()
    assert worker["tenant"] == "default"


@pytest.mark.parametrize("guidance", ["[" * 100_000, "[" * 3000 + "]" * 3000, "[1,", "[]", "[[1]]"])
async def test_odd_guidance_is_refused(gateway: Gateway, guidance: str) -> None:
    for ask in (
        gateway.http.post("/v1/videos", json={"prompt": "x", "guidance": guidance}),
        gateway.http.post("/v1/videos", files={"prompt": (None, "x"), "guidance": (None, guidance)}),
    ):
        assert (await ask).status_code == 400


async def test_no_redirect_follows_the_host(gateway: Gateway) -> None:
    answer = await gateway.http.get("/v1/videos/", headers={"host": "evil.example"})
    assert answer.status_code == 404
    assert "evil.example" not in str(answer.headers)
