"""`turnout chat`: one answer, printed as it arrives, or a conversation."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import duration, one_line, shorten
from turnout.cli.options import Common, with_common
from turnout.errors import InvalidRequest, TurnoutError

if TYPE_CHECKING:
    from turnout.cli.client import ApiClient

NAME_WIDTH = 40
WHOLE_ANSWER_S = 1800.0
# Line breaks, tabs, and the joiners that emoji and some scripts are spelled with.
_KEPT = frozenset("\n\t\u200c\u200d")


def register(app: typer.Typer) -> None:
    app.command("chat", epilog=EPILOG)(chat)


EPILOG = """Examples:

  turnout chat smollm2 "why is the sky blue?"

  turnout chat smollm2                           a conversation

  git diff | turnout chat smollm2 --system "Write a commit message."

In a conversation Ctrl-C stops the answer; an empty line or Ctrl-D ends it."""


@with_common
def chat(
    common: Common,
    model: Annotated[str, typer.Argument(help="From `turnout models list`.", show_default=False)],
    prompt: Annotated[
        str | None, typer.Argument(help="The question (default: standard input, or a conversation).")
    ] = None,
    system: Annotated[str | None, typer.Option(help="How the model should behave.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is sober, 1 is lively.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole answer as JSON, once it is there.")
    ] = False,
) -> None:
    """Ask a chat model; the answer appears as it is made."""
    alone = prompt is None and sys.stdin.isatty()
    if alone and as_json:
        raise InvalidRequest("--json needs a prompt", "prompt")
    if prompt is None and not alone:
        prompt = sys.stdin.buffer.read().decode(errors="replace")
    if prompt is not None and not prompt.strip():
        raise InvalidRequest("the prompt is empty", "prompt")
    options = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
    with common.client() as client:
        conversation = Conversation(client, model, options)
        if system:
            conversation.messages.append({"role": "system", "content": system})
        if prompt is None:
            talk(conversation)
        elif as_json:
            request = conversation.request(prompt)
            path = ("v1", "chat", "completions")
            print(json.dumps(client.call("POST", *path, body=request, answer_s=WHOLE_ANSWER_S)))
        else:
            conversation.ask(prompt)


def safe(words: str) -> str:
    """Text from a model, made safe for a terminal: no control characters but line breaks and tabs."""
    return "".join(c if c.isprintable() or c in _KEPT else " " for c in words)


@dataclass(slots=True)
class Conversation:
    """What was said so far, and how to go on."""

    client: "ApiClient"
    model: str
    options: Mapping[str, Any]
    messages: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])

    def request(self, prompt: str) -> Mapping[str, Any]:
        return {**self.options, "messages": [*self.messages, {"role": "user", "content": prompt}]}

    def ask(self, prompt: str) -> None:
        """Prints the answer as it arrives. What arrived is remembered, however it ended."""
        request = self.request(prompt)
        said: list[str] = []
        notice = _Notice(self.model)
        try:
            with closing(self.client.chat_pieces(request)) as pieces:
                for piece in pieces:
                    if piece.text:
                        notice.clear()
                        said.append(piece.text)
                        print(safe(piece.text), end="", flush=True)
                    elif not said:
                        notice.show(piece.notice)
        finally:
            notice.clear()
            if said:
                self.messages = [*request["messages"], {"role": "assistant", "content": "".join(said)}]
                if not said[-1].endswith("\n"):
                    print(flush=True)


class _Notice:
    """`waking smollm2 … 10 s` on a terminal until the first words arrive; it is erased then."""

    def __init__(self, model: str) -> None:
        from turnout.cli.display import is_live

        self._model = shorten(model, NAME_WIDTH)
        self._live = is_live(sys.stderr)
        self._since = time.monotonic()
        self._shown = False

    def show(self, words: str) -> None:
        if self._live:
            what = "waking" if words == "waking" else "waiting for"
            self._put(f"{what} {self._model} … {duration(time.monotonic() - self._since)}")
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            self._put("")
            self._shown = False

    def _put(self, line: str) -> None:
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def talk(conversation: Conversation) -> None:
    """A conversation at the terminal. An error ends it only before the first answer, so that nothing said is lost."""
    with suppress(ImportError):
        import_module("readline")  # gives `input` arrow keys and a history
    while prompt := _typed():
        try:
            conversation.ask(prompt)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
        except TurnoutError as err:
            if not any(message["role"] == "assistant" for message in conversation.messages):
                raise
            print(f"error: {one_line(err.message)}", file=sys.stderr)


def _typed() -> str:
    """The next line; empty at the end of input."""
    try:
        if sys.stdout.isatty():
            return input("> ").strip()
        print("> ", end="", file=sys.stderr, flush=True)  # standard output carries answers only
        return input().strip()
    except EOFError:
        print(file=sys.stderr)
        return ""
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
