"""A network of its own for a machine that can only call out: a namespace behind a firewall that loses packets and is slow. Needs root."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

LOST_PERCENT, RATE = 1, "20mbit"


def do(*words: str, text: str | None = None) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, input=text)


class Box:
    """The namespace. `cut` ends its link for a while."""

    def __init__(self) -> None:
        self.name, self.link = f"box-{os.getpid()}", f"box{os.getpid() % 10**6}"
        octet = os.getpid() % 250
        self.words = ("ip", "netns", "exec", self.name)  # before what runs there
        self.cloud, self.own = f"10.231.{octet}.1", f"10.231.{octet}.2"

    async def cut(self, seconds: float) -> None:
        do("ip", "link", "set", self.link, "down")
        try:
            await asyncio.sleep(seconds)
        finally:
            do("ip", "link", "set", self.link, "up")


@contextmanager
def behind_nat() -> Iterator[Box]:
    """Whoever calls in is dropped, and one packet in a hundred is lost on its way in."""
    box = Box()
    rules = f"""table inet turnout {{
        chain in {{
            type filter hook input priority 0; policy drop;
            iifname "lo" accept
            numgen random mod 100 < {LOST_PERCENT} drop
            ct state established,related accept
        }}
    }}
    """
    try:
        do("ip", "netns", "add", box.name)
        do("ip", "link", "add", box.link, "type", "veth", "peer", "name", "up0", "netns", box.name)
        do("ip", "address", "add", f"{box.cloud}/24", "dev", box.link)
        do("ip", "link", "set", box.link, "up")
        do("ip", "-n", box.name, "address", "add", f"{box.own}/24", "dev", "up0")
        for link in ("lo", "up0"):
            do("ip", "-n", box.name, "link", "set", link, "up")
        rate = ("rate", RATE, "burst", "64kb", "latency", "400ms")
        do("tc", "-n", box.name, "qdisc", "add", "dev", "up0", "root", "tbf", *rate)
        do("ip", "netns", "exec", box.name, "nft", "-f", "-", text=rules)
        yield box
    finally:
        subprocess.run(("ip", "netns", "delete", box.name), capture_output=True, check=False)
        subprocess.run(("ip", "link", "delete", box.link), capture_output=True, check=False)
