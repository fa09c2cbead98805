"""Which interface ranks on Ray talk over."""

import pytest

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.interfaces import socket_variables

GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def test_what_the_operator_set_on_the_node_stays() -> None:
    assert socket_variables({NCCL: "ib0"}, None, "127.0.0.1") == {GLOO: "lo"}
    assert socket_variables({NCCL: "ib0"}, "eth1", "127.0.0.1") == {GLOO: "eth1"}
    assert socket_variables({NCCL: "ib0", GLOO: "eth0"}, "eth1", "192.0.2.7") == {}
    assert socket_variables({NCCL: "ib0", GLOO: "eth0"}, None, "192.0.2.7") == {}


def test_without_a_word_it_is_the_one_with_the_nodes_address() -> None:
    assert socket_variables({}, None, "127.0.0.1") == {GLOO: "lo", NCCL: "lo"}
    with pytest.raises(Misconfigured, match="ray_interface"):
        socket_variables({}, None, "192.0.2.7")
