"""Finding one's videos again: favourites, tags and search; and presets of the operator's and of one's own."""

from pathlib import Path
from typing import Any

import pytest
from tests.gateways import Gateway, bearer, running

from turnout.stores import Stores
from turnout.tasks import label_store
from turnout.tasks.preset_rules import MAX_PRESETS, PresetGiven
from turnout.tenants.key_rules import Role


async def _found(gateway: Gateway, **query: Any) -> list[str]:
    answer = await gateway.http.get("/v1/videos", params=query)
    return [video["prompt"] for video in answer.raise_for_status().json()["data"]]


async def test_videos_are_found_by_words_tags_favourites_model_and_state(gateway: Gateway) -> None:
    ids = {
        words: await gateway.submit(prompt=words) for words in ("a red ball", "a blue BALL", "一只红色的球")
    }
    assert await _found(gateway, query="ball") == ["a blue BALL", "a red ball"]
    assert await _found(gateway, query="Ball  RED") == ["a red ball"]
    assert await _found(gateway, query="红色") == ["一只红色的球"]
    blue = f"/v1/videos/{ids['a blue BALL']}"
    said = (await gateway.http.patch(blue, json={"favourite": True, "tags": ["#sky", "best", "sky"]})).json()
    assert (said["favourite"], said["tags"]) == (True, ["sky", "best"])
    await gateway.http.patch(f"/v1/videos/{ids['a red ball']}", json={"tags": ["best"]})
    assert await _found(gateway, favourite=True) == ["a blue BALL"]
    assert await _found(gateway, tag="best") == ["a blue BALL", "a red ball"]
    assert await _found(gateway, tag="best", query="red") == ["a red ball"]
    assert await _found(gateway, status="completed") == [] == await _found(gateway, model="none")
    assert await _found(gateway, status="queued", model="wan-tiny-t2v", order="asc") == list(ids)
    listed = (await gateway.http.get("/v1/videos")).json()["data"]
    assert [video["tags"] for video in listed] == [[], ["sky", "best"], ["best"]]


async def test_labels_stay_while_a_video_is_made_and_go_with_it(gateway: Gateway) -> None:
    video = f"/v1/videos/{await gateway.submit(prompt='a red ball')}"
    await gateway.http.patch(video, json={"tags": ["keep"]})
    await gateway.gang.finish(await gateway.gang.claim())
    await gateway.http.patch(video, json={"favourite": True})
    done = (await gateway.http.get(video)).json()
    assert (done["status"], done["favourite"], done["tags"]) == ("completed", True, ["keep"])
    await gateway.http.delete(video)
    assert (await gateway.http.patch(video, json={"favourite": True})).status_code == 404


@pytest.mark.parametrize("tags", [["two words"], [""], ["x" * 41], [f"t{i}" for i in range(11)], ["a\x00b"]])
async def test_tags_are_few_and_single_words(gateway: Gateway, tags: list[str]) -> None:
    video = await gateway.submit(prompt="a red ball")
    answer = await gateway.http.patch(f"/v1/videos/{video}", json={"tags": tags})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tags")


async def test_another_tenants_videos_are_neither_labelled_nor_found(gateway: Gateway) -> None:
    video = await gateway.submit(prompt="a secret")
    other = bearer(await gateway.key("other"))
    answer = await gateway.http.patch(f"/v1/videos/{video}", json={"favourite": True}, headers=other)
    assert answer.status_code == 404
    found = await gateway.http.get("/v1/videos", params={"query": "secret"}, headers=other)
    assert found.json()["data"] == []


async def test_a_search_through_many_goes_page_by_page_and_misses_none(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request reads so many videos and no more, also where none of them is wanted."""
    monkeypatch.setattr(label_store, "_MOST_READ", 200)
    limits = {"limit_waiting": 1000, "limit_submits_per_minute": 10_000}
    async with running(stores, tmp_path, **limits) as gateway:
        for n in range(330):
            await gateway.submit(prompt=f"number {n} {'rare' if n in (5, 6, 200, 329) else 'usual'}")
        found: list[str] = []
        after, pages, more = None, 0, True
        while more:
            query = {"query": "rare", "limit": 2, **({"after": after} if after else {})}
            page = (await gateway.http.get("/v1/videos", params=query)).json()
            found += [video["prompt"] for video in page["data"]]
            after, more, pages = page["last_id"], page["has_more"], pages + 1
        assert found == [f"number {n} rare" for n in (329, 200, 6, 5)]
        assert pages <= 4


async def test_presets_are_the_operators_and_ones_own(stores: Stores, tmp_path: Path) -> None:
    draft: dict[str, Any] = {"model": "wan-tiny-t2v", "steps": 4, "guidance": (3.0,)}
    async with running(stores, tmp_path, presets={"draft": PresetGiven(**draft)}) as gateway:
        mine = {"size": "128x128", "frames": 9, "negative_prompt": "blurred", "loras": ["style:0.8"]}
        made = await gateway.http.put("/v1/presets/我的 预设", json=mine)
        assert made.status_code == 200, made.text
        listed = (await gateway.http.get("/v1/presets")).json()["data"]
        assert [(one["name"], one["source"]) for one in listed] == [
            ("draft", "operator"),
            ("我的 预设", "own"),
        ]
        given = {name: value for name, value in listed[1]["settings"].items() if value is not None}
        assert given == mine
        other = bearer(await gateway.key("other"))
        seen = (await gateway.http.get("/v1/presets", headers=other)).json()["data"]
        assert [one["name"] for one in seen] == ["draft"]
        assert (await gateway.http.delete("/v1/presets/我的 预设", headers=other)).status_code == 404
        assert (await gateway.http.delete("/v1/presets/draft")).status_code == 404, "it is the operator's"
        assert (await gateway.http.delete("/v1/presets/我的 预设")).status_code == 200


async def test_presets_are_bounded_and_refuse_what_they_do_not_know(gateway: Gateway) -> None:
    for n in range(MAX_PRESETS):
        assert (await gateway.http.put(f"/v1/presets/p{n}", json={})).status_code == 200
    one_more = await gateway.http.put("/v1/presets/more", json={})
    assert (one_more.status_code, one_more.json()["error"]["code"]) == (409, "too_many_presets")
    assert (await gateway.http.put("/v1/presets/p0", json={"steps": 5})).status_code == 200
    for wrong in ({"prompt": "x"}, {"steps": 0}, {"size": "big"}, {"guidance": [1, 2, 3]}, {"shift": 1e9}):
        assert (await gateway.http.put("/v1/presets/p1", json=wrong)).status_code == 400, wrong
    assert (await gateway.http.put("/v1/presets/%20", json={})).status_code == 400
    worker = bearer(await gateway.key("acme", Role.WORKER))
    assert (await gateway.http.get("/v1/presets", headers=worker)).status_code == 403
