"""The out-of-band exchanges, held against the C programs' own formats."""

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.cli.control import ControlConnection
from softhca.cli.errors import CommandError
from softhca.cli.perftest_exchange import CYCLE_BUFFER_BYTES, SCRIPTS, Keys, PerftestExchange, Report
from softhca.cli.pingpong_exchange import (
    NO_DESTINATION,
    Destination,
    exchange_all_as_client,
    exchange_all_as_server,
    exchange_as_client,
    exchange_as_server,
)

GID = bytes(10) + b"\xff\xff\x7f\x00\x00\x02"
# What printf gives for "%04x:%06x:%06x:%s" and a wire GID, and for perftest's KEY_PRINT_FMT_GID.
PINGPONG_TEXT = b"0000:000011:abc123:00000000000000000000ffff7f000002\0"
KEYS_TEXT = (
    b"0001:0010:0000a7:fedcba:00001234:00007f0102030405:"
    b"00:00:00:00:00:00:00:00:00:00:ff:ff:7f:00:00:02:00000000:\0"
)
KEYS = Keys(1, 16, 0xA7, 0xFEDCBA, 0x1234, 0x7F0102030405, GID)


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    for end in (left, right):
        end.settimeout(10)
    wrapped = [object.__new__(ControlConnection) for _ in range(2)]
    for connection, end in zip(wrapped, (left, right), strict=True):
        connection._socket = end
    yield wrapped
    left.close()
    right.close()


def in_thread(work):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(work()))
    thread.start()
    return thread, outcome


def test_pingpong_address_is_the_programs_text_with_its_nul():
    assert Destination(0, 0x11, 0xABC123, GID).encode() == PINGPONG_TEXT
    assert len(PINGPONG_TEXT) == 52


def test_pingpong_address_is_read_from_the_programs_text():
    assert Destination.decode(PINGPONG_TEXT) == Destination(0, 0x11, 0xABC123, GID)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        PINGPONG_TEXT[:-1],
        PINGPONG_TEXT + b"x",
        PINGPONG_TEXT.replace(b":", b";"),
        PINGPONG_TEXT.replace(b"abc123", b"abcxyz"),
        PINGPONG_TEXT.replace(b"abc123", b"+bc123"),
        b"\xff" * 52,
    ],
)
def test_text_that_is_no_pingpong_address_is_refused(text):
    with pytest.raises(CommandError, match="LID:QPN:PSN:GID"):
        Destination.decode(text)


@given(
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFFFF),
    st.integers(0, 0xFFFFFF),
    st.binary(min_size=16, max_size=16),
)
def test_pingpong_address_survives_the_wire(lid, qpn, psn, gid):
    destination = Destination(lid, qpn, psn, gid)
    assert Destination.decode(destination.encode()) == destination


def test_pingpong_client_speaks_first_and_ends_with_done(ends):
    client, server = ends
    mine, theirs = Destination(0, 1, 2, GID), Destination(0, 3, 4, GID)
    thread, outcome = in_thread(lambda: exchange_as_client(client, mine))
    assert server.receive(52) == mine.encode()
    server.send(theirs.encode())
    assert server.receive(5) == b"done\0"
    thread.join()
    assert outcome == [theirs]


def test_pingpong_server_is_ready_before_it_answers(ends):
    client, server = ends
    mine, theirs = Destination(0, 1, 2, GID), Destination(0, 3, 4, GID)
    seen = []

    def make_ready(destination):
        seen.append((destination, client.readable()))

    thread, outcome = in_thread(lambda: exchange_as_server(server, mine, make_ready))
    client.send(theirs.encode())
    assert client.receive(52) == mine.encode()
    client.send(b"done\0")
    thread.join()
    assert seen == [(theirs, False)]
    assert outcome == [theirs]


SHARED = [Destination(0, number, 2, GID) for number in range(1, 4)] + 253 * [NO_DESTINATION]


def test_srq_pingpong_exchanges_256_addresses_however_many_are_used(ends):
    client, server = ends
    seen = []
    thread, outcome = in_thread(lambda: exchange_all_as_client(client, SHARED))
    exchange_all_as_server(server, SHARED[::-1], seen.append)
    thread.join()
    assert (seen, outcome) == ([SHARED], [SHARED[::-1]])


def test_srq_pingpong_addresses_are_the_programs_texts_in_a_row(ends):
    client, server = ends
    thread, outcome = in_thread(lambda: exchange_all_as_client(client, SHARED))
    texts = server.receive(256 * 52)
    assert texts[2 * 52 : 4 * 52] == (
        b"0000:000003:000002:00000000000000000000ffff7f000002\0" b"0000:000000:000000:" + 32 * b"0" + b"\0"
    )
    server.send(texts)
    assert server.receive(5) == b"done\0"
    thread.join()
    assert outcome == [SHARED]


def test_a_server_of_one_queue_pair_says_what_a_client_with_256_addresses_takes(ends):
    client, server = ends
    client.send(b"".join(each.encode() for each in SHARED))
    with pytest.raises(CommandError, match="--srq"):
        exchange_as_server(server, Destination(0, 3, 4, GID), lambda destination: None)


def test_pingpong_server_refuses_another_end_than_done(ends):
    client, server = ends
    client.send(Destination(0, 3, 4, GID).encode() + b"nope\0")
    with pytest.raises(CommandError, match="done"):
        exchange_as_server(server, Destination(0, 1, 2, GID), lambda destination: None)


def test_peer_that_closes_in_the_middle_is_an_error_not_a_hang(ends):
    client, server = ends
    client.send(PINGPONG_TEXT[:20])
    client.close()
    with pytest.raises(CommandError, match="closed"):
        exchange_as_server(server, Destination(0, 1, 2, GID), lambda destination: None)


def test_perftest_keys_are_the_programs_text_with_its_nul():
    assert KEYS.encode() == KEYS_TEXT
    assert len(KEYS_TEXT) == 108


def test_perftest_keys_are_read_from_the_programs_text():
    assert Keys.decode(KEYS_TEXT) == KEYS


@pytest.mark.parametrize(
    "text",
    [
        b"",
        KEYS_TEXT[:-1],
        KEYS_TEXT + b"\0",
        KEYS_TEXT.replace(b":7f:", b":7:f:"),
        KEYS_TEXT.replace(b"a7", b"-7"),
        b"0" * 108,
    ],
)
def test_text_that_is_not_perftest_keys_is_refused(text):
    with pytest.raises(CommandError, match="perftest"):
        Keys.decode(text)


@given(
    st.builds(
        Keys,
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFFFF),
        st.integers(0, 0xFFFFFF),
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, (1 << 64) - 1),
        st.binary(min_size=16, max_size=16),
        st.integers(0, 0xFFFFFFFF),
    )
)
def test_perftest_keys_survive_the_wire(keys):
    assert Keys.decode(keys.encode()) == keys


def test_perftest_report_is_five_values_in_network_order():
    fields = Report(65536, 5000, 1.5, 2.5, 0.25).fields()
    assert fields == [
        struct.pack(">Q", 65536),
        struct.pack(">Q", 5000),
        struct.pack(">d", 1.5),
        struct.pack(">d", 2.5),
        struct.pack(">d", 0.25),
    ]
    assert Report.from_fields(fields) == Report(65536, 5000, 1.5, 2.5, 0.25)


class Said:
    """A control connection whose peer has always said something already."""

    def __init__(self):
        self.calls = []

    def send(self, words):
        self.calls.append(("send", words))

    def receive(self, length_bytes, timeout_s=None):
        self.calls.append(("receive", length_bytes))
        return bytes(length_bytes)


@pytest.mark.parametrize("client", [True, False])
def test_who_connects_speaks_first_in_a_step(client):
    said = Said()
    assert PerftestExchange(said, client).swap(b"word") == bytes(4)
    steps = [("send", b"word"), ("receive", 4)]
    assert said.calls == (steps if client else steps[::-1])


def test_perftest_introduction_is_version_sizes_and_mtu(ends):
    client, server = ends
    thread, outcome = in_thread(lambda: PerftestExchange(client, client=True).introduce(5))
    assert server.receive(16) == b"6.06" + bytes(12)
    server.send(b"5.92".ljust(16, b"\0"))
    assert server.receive(4) == struct.pack(">i", 4096)
    server.send(struct.pack(">i", 8192))
    assert server.receive(4) == struct.pack(">i", 64)
    server.send(struct.pack(">i", 64))
    assert server.receive(2) == b"5\0"
    server.send(b"3\0")
    thread.join()
    assert outcome == [(3, 8192)]


def test_perftest_server_waits_for_the_client_in_every_step(ends):
    client, server = ends
    thread, outcome = in_thread(lambda: PerftestExchange(server, client=False).introduce(3))
    assert not client.readable(0.05)
    for mine, length in (
        (b"6.06".ljust(16, b"\0"), 16),
        (struct.pack(">i", 4096), 4),
        (struct.pack(">i", 64), 4),
        (b"5\0", 2),
    ):
        client.send(mine)
        client.receive(length)
    thread.join()
    assert outcome == [(3, CYCLE_BUFFER_BYTES)]


@pytest.mark.parametrize("version", [b"5.69", b"", b"nan", b"9e9", b"six"])
def test_perftest_peer_with_another_exchange_is_refused(ends, version):
    client, server = ends
    server.send(version.ljust(16, b"\0") + struct.pack(">ii", 4096, 64) + b"5\0")
    with pytest.raises(CommandError, match="version"):
        PerftestExchange(client, client=True).introduce(5)


@pytest.mark.parametrize("size", [0, -1, (1 << 30) + 1])
def test_perftest_peer_with_a_senseless_buffer_is_refused(ends, size):
    client, server = ends
    server.send(b"6.06".ljust(16, b"\0") + struct.pack(">ii", size, 64) + b"5\0")
    with pytest.raises(CommandError, match="buffer"):
        PerftestExchange(client, client=True).introduce(5)


@pytest.mark.parametrize(("theirs", "common"), [(1024, CYCLE_BUFFER_BYTES), (8192, 8192)])
def test_the_buffer_is_as_large_as_the_end_that_cycles_through_more(ends, theirs, common):
    client, server = ends
    server.send(b"6.06".ljust(16, b"\0") + struct.pack(">ii", theirs, 64) + b"5\0")
    assert PerftestExchange(client, client=True).introduce(5) == (5, common)


def test_perftest_finish_is_a_handshake_and_done(ends):
    client, server = ends
    server.send(KEYS_TEXT + b"done\0")
    PerftestExchange(client, client=True).finish(KEYS)
    assert server.receive(108 + 5) == KEYS_TEXT + b"done\0"
    assert server.readable(0), "it says nothing more"


def test_perftest_peer_that_has_gone_behind_its_last_handshake_is_finished(ends):
    client, server = ends
    server.send(KEYS_TEXT)
    server._socket.shutdown(socket.SHUT_WR)
    PerftestExchange(client, client=True).finish(KEYS)


def test_perftest_peer_that_goes_on_where_this_end_is_done_is_an_error(ends):
    """As one does that runs through more sizes: it greets again."""
    client, server = ends
    server.send(2 * KEYS_TEXT)
    with pytest.raises(CommandError, match="goes on"):
        PerftestExchange(client, client=True).finish(KEYS)


@pytest.mark.parametrize("first", [True, False])
def test_an_end_attends_behind_its_own_word_and_before_the_peers(ends, first):
    mine, theirs = ends
    exchange = PerftestExchange(mine, client=first)
    seen = []

    def attend():
        seen.append(theirs.readable())
        theirs.send(KEYS_TEXT)

    exchange.attend = attend
    assert exchange.handshake(KEYS) == KEYS
    assert seen == [first]


def test_handshakes_beyond_one_a_queue_pair_are_those_of_the_programs():
    """Counted in the programs' main functions: ctx_hand_shake outside of the loops over queue pairs."""
    counted = {
        name: script.first + script.ready + script.posted + script.report + script.close
        for name, script in SCRIPTS.items()
    }
    assert counted == {
        "write-bw": 3,
        "read-bw": 3,
        "atomic-bw": 3,
        "send-bw": 3,
        "write-lat": 2,
        "read-lat": 3,
        "atomic-lat": 3,
        "send-lat": 3,
    }


def test_an_end_that_is_done_waits_until_the_other_one_is(ends):
    left, right = ends
    thread, outcome = in_thread(left.part)
    assert right.readable(10)  # the end of what left says
    assert thread.is_alive()
    right.part()
    thread.join(10)
    assert outcome == [None]


def test_an_end_that_is_done_does_not_wait_for_one_that_has_gone(ends):
    left, right = ends
    right.close()
    left.part(1e6)
    left.part(1e6)


def test_an_end_that_is_done_waits_for_a_silent_one_no_longer_than_it_is_told(ends):
    ends[0].part(0.0)
    assert ends[1].readable(10)
