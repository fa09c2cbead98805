"""`turnout models`, `turnout workers` and `turnout chat` against a scripted gateway."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from tests.cli.conftest import Cli, wait_until
from tests.cli.scripted import TOKEN, ScriptedGateway, error
from tests.pace import patient

from turnout.cli.chat_command import Conversation, talk
from turnout.cli.client import ApiClient
from turnout.cli.options import ServerAddress

COMMAND = [sys.executable, "-c", "from turnout.cli.main import app; app(prog_name='turnout')"]
DONE = b"data: [DONE]\n\n"
GIB = 1 << 30


def frame(words: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": words}}]}
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


def asked(gateway: ScriptedGateway, number: int = -1) -> dict[str, Any]:
    return json.loads(gateway.requests[number].body)


class Terminal:
    """The command at a terminal of its own; what it shows is collected as it comes."""

    def __init__(self, cli: Cli, *args: str) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *args],
            cwd=cli.cwd,
            env={**cli.env, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            text=True,
        )
        cli.started.append(self.process)
        os.close(theirs)
        self.seen = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while piece := os.read(self.ours, 4096):
                self.seen.extend(piece)
        except OSError:
            pass  # the other end is closed

    def type(self, words: str) -> None:
        os.write(self.ours, words.encode())

    def wait_for(self, words: str, times: int = 1) -> None:
        wait_until(
            lambda: self.seen.decode(errors="replace").count(words) >= times, f"{words} in {self.seen}"
        )


def test_register_sends_what_was_given_and_nothing_else(cli: Cli, gateway: ScriptedGateway) -> None:
    done = cli("models", "register", "a", "--engine", "llamacpp", "--model-name", "builtin:smollm2")
    assert (done.code, done.out) == (0, "a registered\n")
    assert asked(gateway) == {"alias": "a", "engine": "llamacpp", "model_name": "builtin:smollm2"}
    line = "models register b --engine vllm --model-name m --gpus 2 --gpu-memory 1.5GiB --memory 500MB "
    line += "--tensor-parallel-size 2 --max-model-len 4096 --gpu-memory-utilization 0.8 --dtype bfloat16 "
    line += "--quantization fp8 --arg=--enforce-eager --arg=--seed=1 --min-replicas 1 --max-replicas 3 "
    line += "--idle-s 0 --load-timeout-s 900 --concurrency 8 --sleep --json"
    assert json.loads(cli(*line.split()).out)["id"] == "b"
    assert asked(gateway) == {
        "alias": "b",
        "engine": "vllm",
        "model_name": "m",
        "gpus": 2,
        "gpu_memory_bytes": 3 * GIB // 2,
        "memory_bytes": 500_000_000,
        "tensor_parallel_size": 2,
        "max_model_len": 4096,
        "gpu_memory_utilization": 0.8,
        "dtype": "bfloat16",
        "quantization": "fp8",
        "arguments": ["--enforce-eager", "--seed=1"],
        "min_replicas": 1,
        "max_replicas": 3,
        "idle_s": 0,
        "load_timeout_s": 900,
        "concurrency": 8,
        "sleep": True,
    }
    line = "models register clips --engine wan --model-name w --family wan2.2-ti2v-5b --ulysses 4 --cfg 2 --fsdp "
    assert cli(*f"{line} --device cuda".split()).code == 0
    video = {"family": "wan2.2-ti2v-5b", "ulysses": 4, "cfg": 2, "fsdp": True, "device": "cuda"}
    assert asked(gateway) == {"alias": "clips", "engine": "wan", "model_name": "w", **video}
    words = "serve 'two words' --port {port} $HOME; rm"
    cli("models", "register", "c", "--engine", "command", "--model-name", "m", "--command", words)
    assert asked(gateway)["command"] == ["serve", "two words", "--port", "{port}", "$HOME;", "rm"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpu-memory", "much"], "is a size like 40GiB"),
        (["--command", "it's"], "No closing quotation"),
        (["--engine", "ray"], "engine is one of wan, vllm, llamacpp, command; not ray"),
        (["--idle-s", "nan"], "numbers must be finite"),
    ],
)
def test_a_bad_registration_is_refused_before_anything_is_sent(
    cli: Cli, gateway: ScriptedGateway, args: list[str], said: str
) -> None:
    done = cli("models", "register", "a", "--engine", "vllm", "--model-name", "m", *args)
    assert done.code == 2
    assert said in done.err and done.err.count("\n") == 1
    assert gateway.requests == []


def test_workers_are_listed_and_drained(cli: Cli, gateway: ScriptedGateway) -> None:
    assert cli("workers", "list").err == "no worker has joined yet\n"
    gpu = {"index": 0, "total_bytes": 80 * GIB, "free_bytes": 60 * GIB, "name": "X"}
    machine = {"gpus": [gpu, gpu], "memory_bytes": 64 * GIB, "free_memory_bytes": 32 * GIB}
    replicas = [
        {"id": "r-1", "phase": "ready", "busy": 3, "detail": ""},
        {"id": "r-2", "phase": "failed", "busy": 0, "detail": "no such\x1b[2J weights"},
    ]
    gateway.workers = [
        {
            "id": "w-1",
            "name": "big",
            "url": "http://a:1",
            "draining": False,
            "machine": machine,
            "replicas": replicas,
        },
        {"id": "w-2", "name": "new", "url": "http://b:1", "draining": False, "machine": None, "replicas": []},
        {
            "id": "w-3",
            "name": "old",
            "url": "http://c:1",
            "draining": True,
            "machine": machine,
            "replicas": [],
        },
        {
            "id": "w-4",
            "name": "left",
            "url": "http://d:1",
            "draining": True,
            "standing": "gone",
            "heard_ago_s": 140.2,
            "machine": machine,
            "replicas": [],
        },
    ]
    heading, big, new, old, left = cli("workers", "list").out.splitlines()
    assert heading.split() == ["ID", "NAME", "URL", "STATE", "GPUS", "MEMORY", "REPLICAS"]
    assert "takes work  2, 120.0 of 160.0 GiB free  32.0 of 64.0 GiB free" in re.sub("  +", "  ", big)
    assert big.endswith("r-1 ready, 3 busy; r-2 failed: no such [2J weights")
    assert new.split() == ["w-2", "new", "http://b:1", "silent"]
    assert "draining" in old
    assert "silent for 140 s" in left and "draining" not in left
    assert len(json.loads(cli("workers", "list", "--json").out)["data"]) == 4
    assert cli("workers", "drain", "w-1").out == "w-1 is draining\n"
    assert asked(gateway) == {"draining": True}
    assert cli("workers", "drain", "w-1", "--undo").out == "w-1 takes work again\n"
    assert asked(gateway) == {"draining": False}
    assert cli("workers", "drain", "w-9").code == 1


def test_an_answer_is_printed_whole_and_safe(cli: Cli, gateway: ScriptedGateway) -> None:
    answer = frame("the \x1b[31msky\u2028is\u0085blue\ttoo \U0001f468\u200d\U0001f469\n\u202eand")
    cut = answer.index("\U0001f468".encode()) + 2  # within a character
    gateway.chat_frames = [
        b": waking\n\n",
        b'data: {"choices": [{"delta": {"role": "assistant"}}]}\r\n\r\ndata: odd\n\n',
        answer[:cut],
        answer[cut:],
        b'data: {"choices": [], "usage": {}}\n\n',
        DONE,
    ]
    done = cli("chat", "m", "why?", "--system", "be brief", "--max-tokens", "9", "--temperature", "0")
    assert (done.code, done.err) == (0, ""), "what a terminal would be told is nothing to a file"
    assert done.out == "the  [31msky is blue\ttoo \U0001f468\u200d\U0001f469\n and\n"
    assert asked(gateway) == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}],
        "max_tokens": 9,
        "temperature": 0,
        "stream": True,
    }


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (
            [frame("so"), b'data: {"error": {"message": "The engine\\u001b[2J died."}}\n\n', DONE],
            "The engine [2J died.",
        ),
        ([frame("so"), b'data: {"error": "no memory"}\n\n'], "no memory"),
        ([frame("so")], "the answer broke off before its end"),
    ],
)
def test_an_answer_that_fails_is_one_line_and_exit_1(
    cli: Cli, gateway: ScriptedGateway, frames: list[bytes], said: str
) -> None:
    gateway.chat_frames = frames
    done = cli("chat", "m", "why?")
    assert (done.code, done.out, done.err) == (1, "so\n", f"error: {said}\n")


def test_refusals_and_bad_usage(cli: Cli, gateway: ScriptedGateway) -> None:
    assert cli("chat", "m", " ").code == 2
    assert cli("chat", "m", "x", "--temperature", "nan").code == 2
    assert gateway.requests == []
    gateway.hooks["POST completions"] = lambda _: error(404, "There is no model m.", "model")
    done = cli("chat", "m", "why?")
    assert (done.code, done.err) == (1, "error: There is no model m. (param model)\n")


def test_a_piped_prompt_is_answered_word_by_word_until_ctrl_c(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.chat_frames = [frame("once upon\n"), b"hold"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*COMMAND, "chat", "m"], cwd=cli.cwd, env=cli.env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    with process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"a story\xff")
        process.stdin.close()
        assert process.stdout.readline() == b"once upon\n", "before the answer has ended"
        process.send_signal(signal.SIGINT)
        assert (process.wait(patient(40)), process.stdout.read(), process.stderr.read()) == (130, b"", b"")
    assert asked(gateway)["messages"] == [{"role": "user", "content": "a story\ufffd"}]


def test_a_conversation_keeps_what_was_said(cli: Cli, gateway: ScriptedGateway) -> None:
    gateway.chat_frames = [b": waking\n\n", frame("once"), b"hold"]
    terminal = Terminal(cli, "chat", "smollm2")
    terminal.wait_for("> ")
    terminal.type("a story\n")
    terminal.wait_for("waking smollm2 …")
    terminal.wait_for("once")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("stopped")
    terminal.wait_for("> ", 2)

    gateway.chat_frames = [b'data: {"error": {"message": "It died."}}\n\n']
    terminal.type("go on\n")
    terminal.wait_for("error: It died.")
    terminal.wait_for("> ", 3)

    gateway.chat_frames = [frame("the end"), DONE]
    terminal.type("and then?\n")
    terminal.wait_for("the end")
    terminal.wait_for("> ", 4)
    assert [m["content"] for m in asked(gateway)["messages"]] == ["a story", "once", "and then?"]
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(patient(40)) == 130, "nothing was running"
    assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize("last", [" ", EOFError])
def test_an_empty_line_or_the_end_of_input_ends_a_conversation(
    cli: Cli, gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch, last: Any
) -> None:
    gateway.chat_frames = [frame("fine"), DONE]
    typed = Mock(side_effect=["how are you?", last])
    monkeypatch.setattr("builtins.input", typed)
    with ApiClient(ServerAddress(gateway.url, TOKEN, "a test")) as client:
        talk(Conversation(client, "m", {"model": "m"}))
    assert typed.call_count == 2
    assert len(gateway.requests) == 1
