"""What wraps every request."""

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from turnout.gateway.middleware import UnexpectedErrors


async def test_a_client_that_hangs_up_in_its_body_is_no_failure_of_ours() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()

    told: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        told.append(message)

    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/videos", "headers": []}
    await UnexpectedErrors(app)(scope, receive, send)
    assert told == []
