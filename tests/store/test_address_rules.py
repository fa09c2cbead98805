"""Which addresses may be called, by kind of caller."""

from ipaddress import ip_address

import pytest

from turnout.store.address_rules import (
    TUNNELS,
    in_url,
    is_host,
    is_loopback_name,
    is_public,
    is_safe_issuer_url,
)


@pytest.mark.parametrize(
    ("address", "public", "host"),
    [
        ("93.184.216.34", True, True),
        ("2606:2800:220:1::1", True, True),
        ("::ffff:93.184.216.34", True, True),
        ("10.0.0.1", False, True),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("fd00::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("192.88.99.1", False, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("fe80::1", False, False),
        ("168.63.129.16", False, False),
        ("::ffff:168.63.129.16", False, False),
        (str(TUNNELS), False, False),
        (f"::ffff:{TUNNELS}", False, False),
        (f"::{TUNNELS}", False, False),
        ("127.0.1.1", False, True),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("ff02::1", False, False),
        ("240.0.0.1", False, False),
        ("64:ff9b::a00:1", False, False),
        ("2002:a00:1::1", False, True),
        ("2001::a00:1", False, True),
        ("fec0::1", False, True),
    ],
)
def test_an_address_is_public_or_a_host_whatever_it_is_dressed_as(
    address: str, public: bool, host: bool
) -> None:
    assert (is_public(ip_address(address)), is_host(ip_address(address))) == (public, host)


def test_an_address_with_a_zone_is_not_public() -> None:
    assert not is_public(ip_address("2606:2800:220:1::1%eth0"))


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://issuer.example", True),
        ("https://issuer.example:8443/realms/a", True),
        ("http://localhost:8080/realms/a", True),
        ("http://127.0.0.1", True),
        ("http://[::1]:1", True),
        ("http://issuer.example", False),
        ("http://127.0.0.1.example", False),
        ("https://user@issuer.example", False),
        ("https://issuer.example?a=b", False),
        ("https://issuer.example#a", False),
        ("https://", False),
        ("ftp://localhost", False),
        ("http://[::1", False),
    ],
)
def test_keys_of_an_issuer_come_over_tls_or_from_this_machine(url: str, safe: bool) -> None:
    assert is_safe_issuer_url(url) is safe


@pytest.mark.parametrize(
    ("netloc", "here"),
    [
        ("localhost", True),
        ("localhost:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_only_loopback_names_mean_this_machine(netloc: str, here: bool) -> None:
    assert is_loopback_name(netloc) is here


def test_an_ipv6_address_stands_in_brackets_in_a_url() -> None:
    assert [in_url(host) for host in ("::1", "10.0.0.1", "gpu.example")] == [
        "[::1]",
        "10.0.0.1",
        "gpu.example",
    ]
