"""A route that is run past the framework's router is documented, counted and refused as any other."""

from tests.gateway.conftest import Gateway


async def test_a_shortcut_is_a_documented_route(gateway: Gateway) -> None:
    document = gateway.app.openapi()["paths"]["/v1/videos"]["post"]
    assert document["security"] == [{"HTTPBearer": []}]
    assert set(document["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    assert {"200", "400", "401", "413", "415", "429"} <= set(document["responses"])


async def test_a_shortcut_is_counted_by_its_route(gateway: Gateway) -> None:
    await gateway.submit()
    text = (await gateway.http.get("/metrics")).text
    assert 'turnout_http_requests_total{method="POST",route="/v1/videos",status="200"} 1.0' in text


async def test_what_a_shortcut_refuses_has_the_usual_shape(gateway: Gateway) -> None:
    for content, headers, status in (
        ("x", {"content-type": "text/plain"}, 415),
        ("{", {"content-type": "application/json"}, 400),
        ("{}", {"authorization": "Bearer tk-a.b"}, 401),
        ("{}", {"x-turnout-priority": "odd"}, 400),
    ):
        answer = await gateway.http.post("/v1/videos", content=content, headers=headers)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"].startswith("req-")
