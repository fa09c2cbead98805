"""Submission: what is accepted, what is refused, and exactly how."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.gateways import Gateway, picture

from turnout.tasks.submission import Submissions
from turnout.tenants.key_rules import Role

BALL = {"prompt": "a red ball"}


def error(answer: Any) -> tuple[int, str | None, str | None, str]:
    problem = answer.json()["error"]
    assert set(problem) == {"message", "type", "param", "code"}
    return answer.status_code, problem["param"], problem["code"], problem["message"]


async def test_a_prompt_alone_gets_the_first_models_defaults(gateway: Gateway) -> None:
    answer = await gateway.http.post("/v1/videos", json=BALL)
    video = answer.json()
    assert answer.status_code == 200
    assert answer.headers["openai-poll-after-ms"] == "1000"
    assert video["id"].startswith("video_")
    assert {k: video[k] for k in ("object", "model", "status", "progress", "size", "seconds", "seed")} == {
        "object": "video",
        "model": "wan-tiny-t2v",
        "status": "queued",
        "progress": 0,
        "size": "128x128",
        "seconds": "2",
        "seed": 7,
    }
    assert (video["queue_position"], video["steps"], video["frames"], video["fps"]) == (0, 20, 17, 8)
    assert video["error"] is None and video["completed_at"] is None and video["expires_at"] is None


LENGTH = "seconds must be above 0 and at most 8 at 8 fps."
TWO = "guidance must be one number or two (low noise, high noise), each from 0 to 50."
PRIVATE = "The URL leads to an address that is not public; the operator can allow that (allow_private_urls)."
OFFERED = "size 640x640 is not offered; allowed: 832x480, 480x832, 624x624, 1280x720, 720x1280, 960x960."
SPLIT = "624x624 with 5 frames gives 3042 tokens, which this model's gang cannot split 8 ways; "
PNG = "data:image/png;base64,AAAA"
# What is sent beside a good prompt, by the code of the refusal. The first field is the one that it names, if no other is.
REFUSED: dict[str, list[tuple[Any, ...]]] = {
    "missing": [
        (
            {"model": "i2v-big"},
            "this model animates a given image: input_reference is required.",
            "input_reference",
        ),
        (
            {"input_reference": {"file_id": "f"}},
            "input_reference.image_url is required.",
            "input_reference.image_url",
        ),
    ],
    "string_too_long": [
        ({"prompt": "x" * 4001}, "prompt is over 4000 characters."),
        ({"negative_prompt": "x" * 4001}, "negative_prompt is over 4000 characters."),
        ({"webhook_url": "http://a/" + "x" * 2048}, "webhook_url is over 2048 characters."),
    ],
    "unknown_parameter": [({"colour": "red"}, "Unknown parameter: colour.")],
    "model_not_found": [({"model": "nope"}, "There is no model nope.")],
    "invalid_type": [
        ({"prompt": 3}, "prompt must be text."),
        ({"prompt": None}, "prompt must be text."),
        ({"model": 5}, "model must be text."),
        ({"frames": 4.5}, "frames must be a whole number."),
        ({"seconds": "long"}, "seconds must be a number."),
        ({"steps": "many"}, "steps must be a whole number."),
        ({"guidance": "3,high"}, "guidance must be a number."),
        ({"input_reference": "x"}, "input_reference must be an object."),
    ],
    "invalid_value": [
        ({"prompt": ""}, "prompt must not be empty."),
        ({"prompt": "  \n"}, "prompt must not be empty."),
        ({"size": "big"}, "size must look like 128x128."),
        ({"size": "130x128"}, "width and height must be multiples of 16; got 130x128."),
        ({"size": "512x512"}, "size 512x512 is over this model's 65536 pixels."),
        ({"size": "640x640", "model": "t2v-big"}, OFFERED),
        ({"size": "624x624", "model": "t2v-big", "frames": 5}, SPLIT + "choose another size or length."),
        ({"frames": 16}, "frames must be 4n+1 and at most 65; got 16."),
        ({"frames": 69, "model": "wan-tiny-t2v"}, "frames must be 4n+1 and at most 65; got 69."),
        ({"frames": True}, "frames must be a number, not a boolean."),
        ({"frames": 17, "seconds": 2}, "give seconds or frames, not both."),
        ({"seconds": 0}, LENGTH),
        ({"seconds": "9"}, LENGTH),
        ({"seconds": "NaN"}, "seconds must be a finite number."),
        ({"fps": 0}, "fps must be from 1 to 60; got 0."),
        ({"steps": 101}, "steps must be from 1 to 100; got 101."),
        ({"guidance": [1, 2, 3]}, TWO),
        ({"guidance": []}, TWO),
        ({"guidance": -1}, TWO),
        ({"guidance": "[3"}, "guidance must be one number or two, like 3.5 or 3,4."),
        ({"shift": 0}, "shift must be from 0.1 to 100; got 0."),
        ({"seed": -1}, "seed must be from 0 to 4294967295; got -1."),
        (
            {"image_url": PNG, "input_reference": {"image_url": "http://a"}},
            "Give one image: input_reference or image_url.",
        ),
        ({"image_url": "data:text/plain,hi"}, "A data URL must be 'data:image/…;base64,…'."),
        ({"image_url": "data:image/png;base64,*"}, "The data URL is not valid base64."),
    ],
    "invalid_image": [({"image_url": PNG}, "The image is not a readable PNG, JPEG or WebP.")],
    "unsupported": [
        ({"image_url": PNG, "model": "wan-tiny-t2v"}, "this model draws from words alone.", "input_reference")
    ],
    "url_not_allowed": [
        ({"image_url": "http://127.0.0.1/a.png"}, PRIVATE),
        ({"webhook_url": "http://[::1]/hook"}, PRIVATE),
        ({"webhook_url": "ftp://example.com/"}, "Only http and https URLs are allowed."),
    ],
}


async def test_a_bad_value_names_its_field_and_says_what_is_allowed(gateway: Gateway) -> None:
    nothing = error(await gateway.http.post("/v1/videos", json={}))
    assert nothing == (400, "prompt", "missing", "prompt is required.")
    for code, rows in REFUSED.items():
        for fields, message, *named in rows:
            param = named[0] if named else next(iter(fields))
            status = 404 if code == "model_not_found" else 400
            answer = await gateway.http.post("/v1/videos", json={**BALL, **fields})
            assert error(answer) == (status, param, code, message), fields
    assert (await gateway.http.get("/v1/videos")).json()["data"] == []


@pytest.mark.parametrize(
    ("body", "kind", "status", "code", "message"),
    [
        (b"{", "application/json", 400, "invalid_json", "The body is not JSON"),
        (b'{"prompt": "\\ud800"}', "application/json", 400, "invalid_json", "The body is not JSON"),
        (b'{"prompt": "x", "shift": NaN}', "application/json", 400, "invalid_json", "The body is not JSON"),
        (b'"prompt"', "application/json", 400, "invalid_type", "The body must be an object."),
        (b"", "application/json", 400, "invalid_json", "The body is not JSON"),
        (b"[" * 5000, "application/json", 400, "invalid_json", "The body is not JSON"),
        (b"prompt=x", "application/x-www-form-urlencoded", 415, None, "Send multipart/form-data or"),
        (b"prompt", "text/plain", 415, None, "Send multipart/form-data or application/json."),
        (b"x", "multipart/form-data", 400, None, "Missing boundary in multipart."),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused(
    gateway: Gateway, body: bytes, kind: str, status: int, code: str | None, message: str
) -> None:
    answer = await gateway.http.post("/v1/videos", content=body, headers={"content-type": kind})
    got = error(answer)
    assert (got[0], got[1], got[2]) == (status, None, code)
    assert got[3].startswith(message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3.5", [3.5, 3.5]), ("3,4", [3.0, 4.0]), ("[3, 4]", [3.0, 4.0]), (" 2 ", [2.0, 2.0])],
)
async def test_guidance_in_a_form_may_be_one_number_or_two(
    gateway: Gateway, text: str, expected: list[float]
) -> None:
    answer = await gateway.http.post(
        "/v1/videos", files={"prompt": (None, "a ball"), "guidance": (None, text)}
    )
    assert answer.json()["guidance"] == expected


async def test_a_form_with_list_fields_as_openai_writes_them(gateway: Gateway) -> None:
    fields = [("prompt", (None, "a ball")), ("guidance[]", (None, "1")), ("guidance[]", (None, "2"))]
    answer = await gateway.http.post("/v1/videos", files=fields)
    assert answer.json()["guidance"] == [1.0, 2.0]


async def test_a_form_gives_the_same_task_as_json(gateway: Gateway) -> None:
    wish = {"prompt": "a ball", "steps": 5, "seconds": 1, "seed": 9, "shift": 2.5, "size": "64x64", "fps": 12}
    by_json = (await gateway.http.post("/v1/videos", json=wish)).json()
    by_form = (
        await gateway.http.post("/v1/videos", files={k: (None, str(v)) for k, v in wish.items()})
    ).json()
    fixed = {"id", "created_at", "queue_position", "events_url"}
    assert {k: v for k, v in by_json.items() if k not in fixed} == {
        k: v for k, v in by_form.items() if k not in fixed
    }


@pytest.mark.parametrize(
    ("files", "param", "message"),
    [
        ([("prompt", (None, "a")), ("prompt", (None, "b"))], "prompt", "prompt is given twice."),
        ([("prompt", (None, "a")), ("seed", (None, ""))], "seed", "seed must be a whole number."),
        ([("prompt", (None, "a")), ("mask", ("m.png", b"x"))], "mask", "Unknown parameter: mask."),
        ([("prompt", (None, "a")), ("wow", (None, "b"))], "wow", "Unknown parameter: wow."),
        (
            [("prompt", (None, "a")), ("guidance", (None, "1")), ("guidance[]", (None, "2"))],
            "guidance",
            "guidance is given twice.",
        ),
        (
            [("prompt", (None, "a")), ("input_reference", (None, "x")), ("input_reference", ("a", b"x"))],
            "input_reference",
            "input_reference is given twice.",
        ),
        ([("prompt[]", (None, "a"))], "prompt", "prompt must be text."),
    ],
)
async def test_a_bad_form_field_is_named(gateway: Gateway, files: Any, param: str, message: str) -> None:
    status, got_param, _, got_message = error(await gateway.http.post("/v1/videos", files=files))
    assert (status, got_param, got_message) == (400, param, message)


async def test_an_image_chooses_a_model_that_takes_images(gateway: Gateway) -> None:
    answer = await gateway.http.post(
        "/v1/videos", data={"prompt": "move"}, files={"input_reference": ("a.png", picture())}
    )
    video = answer.json()
    assert video["model"] == "wan-tiny-ti2v"
    task = await gateway.task(video["id"])
    image = f"tasks/{task.id}/input.png"
    assert task.spec.image == image
    assert (await gateway.blobs.get(image)).startswith(b"\x89PNG")


async def test_a_size_chooses_a_model_that_offers_it(gateway: Gateway) -> None:
    answer = await gateway.http.post("/v1/videos", json={**BALL, "size": "832x480"})
    assert answer.json()["model"] == "t2v-big"


async def test_the_priority_header_is_kept_and_checked(gateway: Gateway) -> None:
    good = await gateway.http.post("/v1/videos", json=BALL, headers={"X-Turnout-Priority": "high"})
    assert good.json()["priority"] == "high"
    bad = await gateway.http.post("/v1/videos", json=BALL, headers={"X-Turnout-Priority": "urgent"})
    assert error(bad) == (
        400,
        "X-Turnout-Priority",
        "invalid_value",
        "X-Turnout-Priority must be low, normal or high.",
    )


async def test_generate_answers_in_the_older_shape(gateway: Gateway) -> None:
    answer = await gateway.http.post("/generate", json={**BALL, "steps": 3})
    assert answer.json() == {"status": "task_started", "task_id": answer.json()["task_id"]}
    assert (await gateway.task(answer.json()["task_id"])).spec.steps == 3
    bad = await gateway.http.post("/generate", json={**BALL, "stepz": 3})
    assert error(bad)[:3] == (400, "stepz", "unknown_parameter")


async def test_the_same_idempotency_key_and_body_give_the_same_task(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "once"}
    first = (await gateway.http.post("/v1/videos", json=BALL, headers=headers)).json()
    again = (await gateway.http.post("/v1/videos", json=BALL, headers=headers)).json()
    form = (
        await gateway.http.post("/v1/videos", files={"prompt": (None, BALL["prompt"])}, headers=headers)
    ).json()
    assert first["id"] == again["id"] == form["id"]
    assert len((await gateway.http.get("/v1/videos")).json()["data"]) == 1


async def test_the_same_idempotency_key_with_another_body_is_a_conflict(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "once"}
    await gateway.http.post("/v1/videos", json=BALL, headers=headers)
    other = await gateway.http.post("/v1/videos", json={"prompt": "blue"}, headers=headers)
    assert error(other)[:3] == (409, "Idempotency-Key", "idempotency_conflict")
    assert other.headers["x-should-retry"] == "false"
    assert "retry-after" not in other.headers


async def test_an_idempotency_key_covers_the_images_bytes_and_keeps_no_second_copy(gateway: Gateway) -> None:
    async def send(image: bytes) -> Any:
        return await gateway.http.post(
            "/v1/videos",
            data=BALL,
            files={"input_reference": ("a.png", image)},
            headers={"Idempotency-Key": "img"},
        )

    first, again, other = (await send(picture()), await send(picture()), await send(picture(colour="blue")))
    assert first.json()["id"] == again.json()["id"]
    assert other.status_code == 409
    assert len([b async for b in gateway.blobs.list("tasks/")]) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "with space", "ümlaut"])
async def test_an_odd_idempotency_key_is_refused(gateway: Gateway, key: str) -> None:
    headers = [(b"idempotency-key", key.encode())]
    answer = await gateway.http.post("/v1/videos", json=BALL, headers=headers)
    assert error(answer) == (
        400,
        "Idempotency-Key",
        "invalid_value",
        "Idempotency-Key must be 1 to 255 visible ASCII characters.",
    )


async def test_another_tenant_may_use_the_same_idempotency_key(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "once"}
    first = (await gateway.http.post("/v1/videos", json=BALL, headers=headers)).json()
    other_key = {"authorization": f"Bearer {await gateway.key('other')}"}
    other = await gateway.http.post("/v1/videos", json=BALL, headers={**headers, **other_key})
    assert other.status_code == 200
    assert other.json()["id"] != first["id"]


async def test_models_are_listed_with_their_rules(gateway: Gateway) -> None:
    listed = (await gateway.http.get("/v1/models")).json()
    assert [m["id"] for m in listed["data"]] == ["wan-tiny-t2v", "wan-tiny-ti2v", "t2v-big", "i2v-big"]
    one = (await gateway.http.get("/v1/models/i2v-big")).json()
    assert (one["image"], one["ranks"], one["defaults"]["guidance"]) == ("required", 8, [3.5, 3.5])
    assert error(await gateway.http.get("/v1/models/none"))[:3] == (404, "model", "model_not_found")


async def test_a_long_json_prompt_survives_unchanged(gateway: Gateway) -> None:
    prompt = 'ein roter Ball \u2028 と \U0001f388 \\ " \x00 end'
    answer = await gateway.http.post(
        "/v1/videos", content=json.dumps({"prompt": prompt}), headers={"content-type": "application/json"}
    )
    assert answer.json()["prompt"] == prompt
    assert (await gateway.task(answer.json()["id"])).spec.prompt == prompt


async def test_names_that_other_servers_users_know_are_taken(gateway: Gateway) -> None:
    theirs = {**BALL, "num_frames": 9, "num_inference_steps": 4, "guidance_scale": 5, "flow_shift": 3}
    ours = {**BALL, "frames": 9, "steps": 4, "guidance": 5, "shift": 3}
    fields = ("frames", "steps", "guidance", "shift")
    made = [(await gateway.http.post("/v1/videos", json=body)).json() for body in (theirs, ours)]
    assert [made[0][name] for name in fields] == [made[1][name] for name in fields] == [9, 4, [5.0, 5.0], 3.0]
    form = {"prompt": "a ball", "sampling_steps": "6", "guidance_scale": "4", "guidance_scale_2": "3"}
    video = (await gateway.http.post("/v1/videos", files={k: (None, v) for k, v in form.items()})).json()
    assert (video["steps"], video["guidance"]) == (6, [3.0, 4.0]), (
        "diffusers' first guidance is for high noise"
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"num_frames": 9, "frames": 9}, "num_frames"),
        ({"num_inference_steps": 4, "sampling_steps": 4}, "sampling_steps"),
        ({"guidance_scale_2": 4}, "guidance_scale_2"),
        ({"guidance_scale_2": 4, "guidance": [3, 4]}, "guidance_scale_2"),
    ],
)
async def test_two_names_of_one_thing_are_refused(gateway: Gateway, body: dict[str, Any], param: str) -> None:
    assert error(await gateway.http.post("/v1/videos", json={**BALL, **body}))[:2] == (400, param)


async def test_an_answer_says_what_is_given_up_for_speed(gateway: Gateway) -> None:
    exact = (await gateway.http.post("/v1/videos", json=BALL)).json()
    assert (exact["guided_share"], exact["lossy"]) == (1.0, {})
    fast = (await gateway.http.post("/v1/videos", json={**BALL, "guided_share": 0.75})).json()
    assert fast["guided_share"] == 0.75 and "36 dB" in fast["lossy"]["guided_share"]
    as_form = {"prompt": (None, "a red ball"), "fp8_attention": (None, "true")}
    by_form = await gateway.http.post("/v1/videos", files=as_form)
    by_json = await gateway.http.post("/v1/videos", json={**BALL, "fp8_attention": True})
    for eight in (by_form.json(), by_json.json()):
        assert eight["fp8_attention"] is True and list(eight["lossy"]) == ["fp8_attention"]
    again = await gateway.http.post(f"/v1/videos/{fast['id']}/remix", json={"prompt": "a blue ball"})
    assert again.status_code in (200, 409)


@pytest.mark.parametrize(
    ("prompt", "unknown", "notice"),
    [
        ("a red square moving to the right", [], None),
        (
            "A dog, and a RED ball!",
            ["dog"],
            "wan-tiny-t2v knows shapes, colours and motions; 'dog' is not among them.",
        ),
        (
            "cats chase mice",
            ["cats", "chase", "mice"],
            "wan-tiny-t2v knows shapes, colours and motions; 'cats', 'chase', 'mice' are not among them.",
        ),
        ("a greenish ball that doesn't move", [], None),
        ("红色圆形在白色背景上向右移动", [], None),
        (
            "一只猫追红色的球,骆驼 dog",
            ["猫追", "骆驼", "dog"],
            "wan-tiny-t2v knows shapes, colours and motions; '猫追', '骆驼', 'dog' are not among them.",
        ),
    ],
)
async def test_words_that_a_tiny_model_was_not_taught_are_named(
    gateway: Gateway, prompt: str, unknown: list[str], notice: str | None
) -> None:
    made = (await gateway.http.post("/v1/videos", json={"prompt": prompt})).json()
    shown = (await gateway.http.get(f"/v1/videos/{made['id']}")).json()
    assert [(each["unknown_words"], each["notice"]) for each in (made, shown)] == [(unknown, notice)] * 2
    other = await gateway.http.post(
        "/v1/videos", json={"prompt": prompt, "model": "t2v-big", "size": "832x480"}
    )
    assert other.json()["notice"] is None


async def test_models_say_what_can_be_asked_of_them(gateway: Gateway) -> None:
    listed = (await gateway.http.get("/v1/models")).json()["data"]
    assert {m["id"]: (m["task_type"], m["capabilities"]) for m in listed} == {
        "wan-tiny-t2v": ("T2V", ["text_to_video"]),
        "wan-tiny-ti2v": ("TI2V", ["text_to_video", "image_to_video"]),
        "t2v-big": ("T2V", ["text_to_video"]),
        "i2v-big": ("I2V", ["image_to_video"]),
    }


async def test_a_submission_whose_client_hangs_up_is_accepted_all_the_same(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, entered, go_on = Submissions.create, asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> Any:
        entered.set()
        await go_on.wait()
        return await create(*given)

    monkeypatch.setattr(Submissions, "create", slow)
    async with httpx.AsyncClient(base_url=served.base, headers=served.http.headers, timeout=30) as http:
        asking = asyncio.create_task(http.post("/v1/videos", json=BALL))
        await entered.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await wait_until(lambda: not served.inside.chat.relay.connections, "the connection to be gone")
    go_on.set()

    async def accepted() -> bool:
        return len((await served.http.get("/v1/videos")).json()["data"]) == 1

    await wait_until(accepted, "the task")


T2V = {"engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "ulysses": 2}


async def test_a_share_of_videos_is_rendered_by_the_version(gateway: Gateway) -> None:
    admin = {"Authorization": f"Bearer {await gateway.key(role=Role.ADMIN)}"}
    declared = {
        **T2V,
        "alias": "a-next",
        "version_of": "wan-tiny-t2v",
        "share": 0.0,
        "rules": {"max_frames": 17},
    }
    assert (await gateway.http.post("/v1/models/register", json=declared, headers=admin)).status_code == 200

    async def model_of(**body: object) -> str:
        answer = await gateway.http.post("/v1/videos", json={**BALL, **body})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["model"])

    assert await model_of() == "wan-tiny-t2v", "a version is nobody's default"
    assert await model_of(model="a-next") == "a-next"
    path = "/v1/models/a-next/share"
    assert (await gateway.http.post(path, json={"share": 0.5}, headers=admin)).json()["share"] == 0.5
    assert {await model_of(batch="b-1", seed=seed) for seed in range(6)} in ({"a-next"}, {"wan-tiny-t2v"})
    assert {await model_of(model="wan-tiny-t2v") for _ in range(40)} == {"a-next", "wan-tiny-t2v"}
    assert (await gateway.http.post(path, json={"share": 1}, headers=admin)).status_code == 200
    assert await model_of() == "a-next"
    assert await model_of(frames=25) == "wan-tiny-t2v", "what the version cannot do, the model does"
