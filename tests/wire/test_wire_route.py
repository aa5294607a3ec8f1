"""Routes: real headers, socket addresses, and the CRC state that goes before the BTH."""

import socket
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire_samples import FRAMINGS, routes, sample_route, v4

from softhca.machine.primitives import address_of
from softhca.wire.framing import DUMMY_LRH, masked
from softhca.wire.ip import internet_checksum
from softhca.wire.route import NATIVE, ROCE_V4, ROCE_V6, Route, is_multicast

LENGTHS = st.integers(4, 1100).map(lambda words: 4 * words)


def test_ipv4_headers_are_those_of_an_unconnected_udp_socket() -> None:
    route = sample_route(identification=0x4C0A, traffic_class=0xB8, hop_limit=9, source_port=0xC144)
    headers = route.headers(24)
    assert headers[:10].hex() == "45b800344c0a40000911"
    assert headers[12:].hex() == "0a0000010a000002c14412b700200000"
    assert internet_checksum(headers[:20]) == 0


@pytest.mark.parametrize(
    ("data", "checksum"),
    [("", 0xFFFF), ("1234", 0xEDCB), ("12", 0xEDFF), ("123456", 0x97CB), ("ffff0001", 0xFFFE), ("ffff", 0)],
)
def test_the_internet_checksum_takes_words_and_fills_up_with_zero(data: str, checksum: int) -> None:
    assert internet_checksum(bytes.fromhex(data)) == checksum


def test_ipv6_headers_name_udp_and_its_length() -> None:
    headers = sample_route(
        "ipv6", traffic_class=0x12, flow_label=0x34567, hop_limit=3, source_port=1
    ).headers(24)
    assert headers.hex() == "6123456700201103" + bytes(range(32)).hex() + "000112b700200000"


def test_native_headers_count_words_to_the_icrc() -> None:
    assert sample_route("native").headers(48, vl=7).hex() == "7012375c000e17d2"
    headers = sample_route("native_grh", traffic_class=1, flow_label=2, hop_limit=3).headers(48)
    assert headers.hex() == "0013375c001817d26010000200301b03" + bytes(range(32)).hex()


@given(routes(), LENGTHS, LENGTHS)
def test_the_seed_is_the_crc_of_the_masked_headers_for_every_length(
    route: Route, first: int, second: int
) -> None:
    for length in (first, second, first, first):
        assert route.seed(length) == zlib.crc32(masked(route.framing, route.headers(length)))


TURNS = st.lists(st.tuples(st.sampled_from((20, 24)), st.sampled_from((0, 4))), max_size=12)


@given(route=routes(), turns=TURNS)
@example(route=sample_route(), turns=[(20, 0), (24, 0), (20, 4)])
def test_the_seeds_of_lengths_that_take_turns_are_theirs(route: Route, turns: list[tuple[int, int]]) -> None:
    for length, route.identification in turns:
        assert route.seed(length) == zlib.crc32(masked(route.framing, route.headers(length)))


@given(routes("ipv4"), LENGTHS, st.integers(0, 0xFFFF))
def test_the_seed_follows_a_changed_identification(route: Route, length: int, identification: int) -> None:
    route.seed(length)
    route.identification = identification
    assert route.seed(length) == zlib.crc32(masked(ROCE_V4, route.headers(length)))


@pytest.mark.parametrize(
    ("address", "group"),
    [("223.255.255.255", False), ("224.0.0.0", True), ("239.255.255.255", True), ("240.0.0.1", False),
     ("255.255.255.255", False)],
)  # fmt: skip
def test_groups_of_ipv4_are_224_to_239(address: str, group: bool) -> None:
    assert is_multicast(v4(address)) is group


@pytest.mark.parametrize("kind", FRAMINGS)
def test_fields_that_change_on_the_way_do_not_change_the_seed(kind: str) -> None:
    plain = sample_route(kind).seed(64)
    changed = sample_route(kind, traffic_class=0xFF, flow_label=0xFFFFF, hop_limit=1)
    assert changed.seed(64) == plain


@pytest.mark.parametrize("kind", FRAMINGS)
def test_all_other_fields_change_the_seed(kind: str) -> None:
    plain = sample_route(kind).seed(64)
    changes = {
        "ipv4": ["source_port", "destination_port", "identification"],
        "ipv6": ["source_port", "destination_port"],
        "native": ["slid", "dlid", "sl"],
        "native_grh": [],
    }[kind]
    for name in changes:
        assert sample_route(kind, **{name: 5}).seed(64) != plain
    assert sample_route(kind).seed(68) != plain
    # a router may change the whole LRH of a packet with a GRH
    assert (sample_route(kind, slid=9, dlid=9, sl=9).seed(64) == plain) == (kind != "native")


def test_addresses_change_the_seed_where_they_are_sent() -> None:
    a, b, c = v4("10.0.0.1"), v4("10.0.0.2"), v4("10.0.0.3")
    for framing, has_grh in ((ROCE_V4, False), (ROCE_V6, False), (NATIVE, True)):
        seeds = {Route(framing, *ends, has_grh=has_grh).seed(64) for ends in ((a, b), (b, a), (a, c), (c, b))}
        assert len(seeds) == 4


def test_only_the_masked_bits_become_ones() -> None:
    zero4, zero6 = bytes(28), bytes(48)
    assert masked(ROCE_V4, zero4) == DUMMY_LRH + bytes.fromhex(
        "00ff0000 00000000 ff00ffff 00000000 00000000 00000000 0000ffff"
    )
    assert masked(ROCE_V6, zero6) == DUMMY_LRH + bytes.fromhex(
        "0fffffff 000000ff" + "00" * 32 + "00000000 0000ffff"
    )
    assert masked(NATIVE, bytes(8)) == bytes.fromhex("f0000000 00000000")
    assert masked(NATIVE, bytes(48)) == b"\xff" * 8 + bytes.fromhex("0fffffff 000000ff" + "00" * 32)


def test_the_socket_address_is_the_kernels() -> None:
    family = socket.AF_INET.to_bytes(2, "little")
    assert sample_route().socket_address == family + (4791).to_bytes(2, "big") + bytes((10, 0, 0, 2)) + bytes(
        8
    )
    address = sample_route("ipv6", scope=3, destination_port=99).socket_address
    family = socket.AF_INET6.to_bytes(2, "little")
    assert address == family + b"\x00\x63" + bytes(4) + bytes(range(16, 32)) + (3).to_bytes(4, "little")
    assert sample_route("native").socket_address == b""


@pytest.mark.parametrize(
    ("framing", "source", "destination"),
    [
        (3, v4("10.0.0.1"), v4("10.0.0.2")),
        (-1, v4("10.0.0.1"), v4("10.0.0.2")),
        (ROCE_V6, bytes(15), bytes(16)),
        (ROCE_V6, bytes(16), bytes(17)),
        (ROCE_V4, bytes(16), v4("10.0.0.2")),
        (ROCE_V4, v4("10.0.0.1"), bytes(16)),
    ],
)
def test_a_route_that_cannot_be_is_refused(framing: int, source: bytes, destination: bytes) -> None:
    with pytest.raises(ValueError, match=r"framing|GID"):
        Route(framing, source, destination)


def test_a_value_beyond_its_field_is_refused() -> None:
    with pytest.raises(ValueError, match="slid"):
        sample_route("native", slid=0x10000)
    with pytest.raises(ValueError, match="source_port"):
        sample_route("ipv4", source_port=0x10000)


def test_defaults_are_what_we_send() -> None:
    route = Route(ROCE_V4, v4("10.0.0.1"), v4("10.0.0.2"))
    assert (route.identification, route.source_port, route.destination_port) == (0, 0xC000, 4791)
    assert (route.hop_limit, route.traffic_class, route.flow_label) == (64, 0, 0)


@given(routes(), LENGTHS, st.integers(0, 15))
def test_the_front_that_is_written_into_packets_is_the_headers(route: Route, length: int, vl: int) -> None:
    native = route.framing == NATIVE
    assert route.vl == route.sl
    route.vl = vl
    buffer = bytearray(b"\xee" * 80)
    for size in (length, 64, length):
        route.put_front(address_of(buffer) + 3, size)
        expected = route.headers(size, vl) if native else b""
        assert route.prefix_bytes == len(expected)
        assert buffer == b"\xee" * 3 + expected + b"\xee" * (77 - len(expected))
    assert route.suffix_bytes == (2 if native else 0)


def test_the_front_follows_what_may_be_changed_at_any_time() -> None:
    route = sample_route("native_grh")
    route.traffic_class, route.flow_label, route.hop_limit = 0xA5, 0xFEDCB, 0x77
    buffer = bytearray(48)
    route.put_front(address_of(buffer), 48)
    assert bytes(buffer) == route.headers(48, route.vl)
    assert buffer[8:12].hex() == "6a5fedcb"


@pytest.mark.parametrize("kind", ["native", "native_grh"])
@pytest.mark.parametrize("length", [4112, 0x7FF * 4 - 48])
def test_the_longest_packets_have_their_length(kind: str, length: int) -> None:
    route = sample_route(kind)
    buffer = bytearray(48)
    route.put_front(address_of(buffer), length)
    headers = route.headers(length, route.vl)
    assert bytes(buffer[: len(headers)]) == headers
    assert route.seed(length) == zlib.crc32(masked(NATIVE, headers))


def test_a_peer_is_known_by_its_gid_or_its_lid() -> None:
    assert sample_route("native").peer == b"\x37\x5c"
    for kind in ("native_grh", "ipv6", "ipv4"):
        route = sample_route(kind)
        assert route.peer == route.destination
