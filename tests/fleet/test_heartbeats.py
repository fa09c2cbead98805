"""Signs of life over a socket: what a rank writes comes out of its supervisor's pipe, and nothing else does."""

import os
import socket

from tests.conftest import wait_until

from turnout.fleet.hosts.ray.heartbeats import HeartbeatAddress, Heartbeats


def new_pipe() -> tuple[int, int]:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)
    return ours, theirs


def read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 4096)
    except BlockingIOError:
        return b""


def connect(address: HeartbeatAddress) -> socket.socket:
    connected = address.connect()
    connected.setblocking(False)  # as the rank has it
    return connected


async def test_signs_come_out_of_the_pipe_of_the_rank_that_knows_the_secret() -> None:
    heartbeats, pipes = Heartbeats(), [new_pipe(), new_pipe()]
    await heartbeats.listen("127.0.0.1")
    first, second = (heartbeats.expect(theirs) for _, theirs in pipes)
    stranger = HeartbeatAddress(first.host, first.port, "0" * 32)
    with connect(first) as one, connect(second) as two, connect(stranger) as other:
        other.send(b"x")
        one.send(b".m")
        two.send(b"r")
        seen = [b"", b""]

        def both() -> bool:
            seen[:] = [so_far + read(ours) for so_far, (ours, _) in zip(seen, pipes, strict=True)]
            return all(seen)

        await wait_until(both, "the signs")
        assert seen == [b".m", b"r"]

        heartbeats.forget(first)  # its pipe may be another file by now
        one.send(b"late")
        two.send(b".")
        await wait_until(lambda: read(pipes[1][0]) == b".", "the sign of the other")
        assert read(pipes[0][0]) == b""
    heartbeats.close()
    for pipe in pipes:
        for end in pipe:
            os.close(end)
