"""A request that the relay's user answers itself, with one whole response."""

from turnout.relay.client_response import ClientResponse, ClientSide
from turnout.relay.framing import Head
from turnout.relay.relay_context import RelayContext


class AnsweredHere(ClientResponse):
    """The answer is sought to its end also for a client that has hung up, as the app does it."""

    _gone = False

    def __init__(
        self, client: ClientSide, context: RelayContext, head: Head, body: bytes, request_id: bytes
    ) -> None:
        lines = context.response_lines + head.response_lines
        ClientResponse.__init__(self, client, head, body, request_id, lines)
        self.request.scheme = client.scheme or "http"
        self._answerer = context.answerers[head.path]
        self._bodies = context.bodies
        self._account = context.account_of(head, len(body))

    def start(self) -> None:
        task = self.client.loop.create_task(self._run())
        tasks = self.client.server_state.tasks  # which the server waits for before it ends
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def client_lost(self) -> None:
        self._gone = True

    def close(self) -> None:
        self.client.reset()

    async def _run(self) -> None:
        size = len(self.request.body)
        self._bodies.add(self._account, size)
        try:
            answer = await self._answerer(self.request)
        except BaseException:
            if not self._gone:
                self.client.reset()
            raise
        finally:
            self._bodies.remove(self._account, size)
        if not self._gone:
            usual = self.client.server_state.default_headers  # the date, which the server keeps
            lines = b"".join([b"%b: %b\r\n" % header for header in usual])
            self.respond(answer.status, lines + answer.lines, answer.body)
            self.client.response_ended(self.keep_alive)
