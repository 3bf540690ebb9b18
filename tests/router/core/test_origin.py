"""Whose request it is, where others speak for a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.origin import MOST_HOPS, MOST_PEERS, Origins, network_of

TRUSTED = Origins(["10.0.0.0/8", "192.0.2.7", "fd00::/8"])


def named(*chains: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", chain) for chain in chains]


def test_an_untrusted_peer_is_the_client_whatever_it_says() -> None:
    assert TRUSTED.client_of("203.0.113.1", named(b"10.0.0.1")) == "203.0.113.1"
    assert TRUSTED.client_of("", named(b"10.0.0.1")) == ""


def test_the_rightmost_untrusted_address_is_the_client() -> None:
    assert TRUSTED.client_of("10.0.0.1", named(b"198.51.100.1, 203.0.113.9, 10.1.1.1,192.0.2.7")) == "203.0.113.9"
    assert TRUSTED.client_of("fd00::1", named(b"2001:db8::1")) == "2001:db8::1"


def test_where_all_are_trusted_the_first_is_the_client() -> None:
    assert TRUSTED.client_of("10.0.0.1", named(b"10.0.0.3", b"10.0.0.2")) == "10.0.0.3"


def test_who_wrote_what_is_no_address_is_the_last_that_is_known() -> None:
    assert TRUSTED.client_of("10.0.0.1", named(b"203.0.113.9, unknown, 10.0.0.2")) == "10.0.0.2"
    assert TRUSTED.client_of("10.0.0.1", named(b"\xff\xfe")) == "10.0.0.1"


def test_only_addresses_tell_for_certain() -> None:
    assert TRUSTED.told("10.0.0.1", named(b"203.0.113.9, 10.0.0.2")) == ("203.0.113.9", True)
    assert TRUSTED.told("10.0.0.1", named(b"unknown, 203.0.113.9")) == ("203.0.113.9", True)
    assert TRUSTED.told("10.0.0.1", named(b"203.0.113.9, unknown")) == ("10.0.0.1", False)
    assert TRUSTED.told("203.0.113.1", named(b"unknown")) == ("203.0.113.1", True)
    assert TRUSTED.told("10.0.0.1", []) == ("10.0.0.1", True)


def test_addresses_of_version_4_in_version_6_are_the_same() -> None:
    assert TRUSTED.trusts("::ffff:10.0.0.1")
    assert TRUSTED.client_of("::ffff:10.0.0.1", named(b"::ffff:203.0.113.9")) == "203.0.113.9"
    assert Origins(["fe80::/10"]).trusts("fe80::1%eth0")


def test_no_more_than_so_many_hops_are_believed() -> None:
    chain = b"203.0.113.9, " + b", ".join([b"10.0.0.1"] * MOST_HOPS)
    assert TRUSTED.client_of("10.0.0.1", named(chain)) == "10.0.0.1"


def test_what_is_remembered_of_peers_is_bounded() -> None:
    origins = Origins(["10.0.0.0/8"])
    for at in range(MOST_PEERS * 2):
        origins.trusts(f"10.{at >> 16}.{at >> 8 & 255}.{at & 255}")
    assert len(origins._known) <= MOST_PEERS


@pytest.mark.parametrize(("client", "network"), [
    ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
    ("2001:db8:1:2::ffff", "2001:db8:1:2::"), ("2001:db8:1:3::1", "2001:db8:1:3::"), ("fe80::1%eth0", "fe80::"),
    ("", ""), ("no: address", "no: address"),
])  # fmt: skip
def test_a_network_counts_as_one_client(client: str, network: str) -> None:
    assert network_of(client) == network


def test_nobody_is_trusted_where_no_network_is_named() -> None:
    assert not Origins([])
    assert TRUSTED


@given(st.ip_addresses().map(str), st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_give_an_address_or_the_peer(peer: str, chains: list[bytes]) -> None:
    client = TRUSTED.client_of(peer, named(*chains))
    assert client == peer or TRUSTED.trusts(peer)
    assert TRUSTED.client_of(client, named(*chains)) in (client, TRUSTED.client_of(peer, named(*chains)))


@given(st.ip_addresses(v=4).filter(lambda each: not TRUSTED.trusts(str(each))), st.binary(max_size=60))
def test_what_a_client_writes_to_the_left_changes_nothing(client: object, forged: bytes) -> None:
    chain = forged + b", " + str(client).encode() + b", 10.0.0.2"
    assert TRUSTED.client_of("10.0.0.1", named(chain)) == str(client)
