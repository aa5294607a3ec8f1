"""The link of a port to a fabric's process, over a socket whose other end is this test's."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from softhca.links import fabric, fabric_messages
from softhca.links.fabric import MOST_TEXTS, FabricLink
from softhca.links.fabric_messages import BURST, HEADER, HELLO, INFO, REFUSAL, WELCOME
from softhca.links.link import AGAIN, SENT
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import NATIVE

PORT = {"lid": 3, "lmc": 0, "sm_lid": 1, "sm_sl": 0, "subnet_timeout": 18, "gid_prefix": 0xFE80 << 48,
        "state": 4, "pkeys": [0xFFFF]}  # fmt: skip
FACTS = {"port_guid": 0x1122, "node_guid": 0x33, "mtu": 5, "width": 2, "speed": 1}
WELCOMED = {**PORT, **FACTS, "node": "h3"}


class Bench:
    """A link that has been joined, and the fabric's end of its socket."""

    def __init__(self, **changed: Any) -> None:
        ours, self.fabric = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.link = FabricLink("f", joined=(ours, {**WELCOMED, **changed}))
        self.infos: list[dict[str, Any]] = []
        self.link.on_info = self.infos.append
        self.arrival = Arrival()

    def close(self) -> None:
        self.link.close()
        self.fabric.close()

    def says(self, *content: bytes) -> None:
        for each in content:
            self.fabric.send(each)

    def receive(self) -> bytes | None:
        return bytes(self.arrival.data[: self.arrival.length]) if self.link.receive(self.arrival) else None


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def burst(data: bytes, stride: int) -> Burst:
    made = Burst()
    made.buffer[: len(data)] = data
    made.length, made.stride = len(data), stride
    return made


def packets(data: bytes, stride: int) -> bytes:
    return HEADER.pack(BURST, stride) + data


def test_a_link_is_what_the_fabric_says(bench: Bench) -> None:
    link = bench.link
    assert link.gid == bytes.fromhex("fe80000000000000") + (0x1122).to_bytes(8, "big")
    assert (link.node, link.address, link.node_guid, link.active_mtu) == ("h3", "h3", 0x33, 4096)
    assert (link.active_width, link.active_speed, link.framing, link.sees_packets) == (2, 1, NATIVE, True)
    assert link.info["pkeys"] == (0xFFFF,)
    for mtu, size in ((0, 256), (1, 256), (3, 1024)):
        other = Bench(mtu=mtu)
        assert other.link.active_mtu == size
        other.close()


def test_a_burst_leaves_with_its_stride_or_its_length(bench: Bench) -> None:
    for stride, told in ((4, 4), (0, 10)):
        assert bench.link.send(burst(bytes(range(10)), stride)) == SENT
        assert bench.fabric.recv(100) == packets(bytes(range(10)), told)
    assert (bench.link.bursts_sent, bench.link.bytes_sent, bench.link.send_errors) == (2, 20, 0)


def test_a_full_fabric_keeps_the_burst_and_one_that_is_gone_loses_it(bench: Bench) -> None:
    for _ in range(10_000):
        if bench.link.send(burst(bytes(60_000), 4000)) == AGAIN:
            break
    assert bench.link.send_blocked == 1
    bench.fabric.close()
    assert bench.link.send(burst(b"x", 1)) in (-errno.EPIPE, -errno.ECONNRESET)
    bench.link.close()
    assert bench.link.send(burst(b"x", 1)) == -errno.ENETDOWN
    assert bench.link.send_errors == 2
    assert (bench.link.fileno(), bench.receive()) == (-1, None)


def test_bursts_come_with_their_stride_and_what_is_none_is_counted(bench: Bench) -> None:
    bench.says(packets(b"abcdef", 4), packets(b"", 0), packets(b"x", 0), packets(b"xy", 3), packets(b"xy", 2))
    assert bench.receive() == b"abcdef"
    assert (bench.arrival.stride, bench.arrival.framing) == (4, NATIVE)
    assert bench.receive() == b"xy"
    counters = bench.link.counters()
    assert (counters["bursts_received"], counters["bytes_received"], counters["messages_bad"]) == (2, 8, 3)
    assert bench.receive() is None


def test_what_is_longer_than_a_burst_is_none(bench: Bench) -> None:
    room = len(bench.arrival.buffer)
    bench.says(packets(bytes(room + 1), 4000), packets(bytes(room), 4000))
    assert bench.receive() == bytes(room)
    assert bench.link.messages_bad == 1


def test_what_a_manager_sets_is_told_in_its_turn(bench: Bench) -> None:
    changed = {**PORT, "lid": 9, "pkeys": [0x8005, 0x7FFF]}
    bench.says(fabric_messages.encode(INFO, changed), packets(b"data", 4))
    assert bench.receive() == b"data"
    assert [each["lid"] for each in bench.infos] == [9]
    assert bench.link.info == bench.infos[0]
    assert bench.link.info["pkeys"] == (0x8005, 0x7FFF)
    for bad in (fabric_messages.encode(HELLO, changed), fabric_messages.encode(INFO, {**changed, "lid": -1}),
                HEADER.pack(INFO, 0) + b"{"):  # fmt: skip
        bench.says(bad)
    assert bench.receive() is None
    assert (bench.link.infos, bench.link.messages_bad, len(bench.infos)) == (1, 3, 1)


def test_so_many_texts_are_taken_in_one_turn(bench: Bench) -> None:
    bench.says(*[fabric_messages.encode(INFO, PORT)] * (MOST_TEXTS + 1))
    assert bench.receive() is None
    assert bench.link.infos == MOST_TEXTS
    assert bench.receive() is None
    assert bench.link.infos == MOST_TEXTS + 1


def test_a_fabric_that_has_gone_leaves_the_port_down(bench: Bench) -> None:
    bench.fabric.close()
    assert bench.receive() is None
    assert [each["state"] for each in bench.infos] == [1]
    assert (bench.link.info["state"], bench.link.fileno()) == (1, -1)
    assert bench.infos[0]["lid"] == 3
    assert bench.receive() is None
    assert len(bench.infos) == 1


class Served:
    """A fabric that answers whoever joins with ``answer``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
        self.answer = answer
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.send(answer)
        monkeypatch.setattr(fabric, "_connected", lambda _: self.ours)


def test_who_joins_says_its_version_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch, fabric_messages.encode(WELCOME, WELCOMED))
    made, content = fabric.join("f", "h3")
    assert (made.getblocking(), content["node"]) == (False, "h3")
    kind, hello = fabric_messages.decode(served.theirs.recv(100))
    assert (kind, hello) == (HELLO, {"version": 2, "node": "h3"})
    made.close()
    served.theirs.close()


@pytest.mark.parametrize(
    ("kind", "content", "code"),
    [
        (REFUSAL, {"errno": errno.EBUSY, "reason": "taken"}, errno.EBUSY), (REFUSAL, {}, errno.EPROTO),
        (REFUSAL, {"errno": "x"}, errno.EPROTO), (WELCOME, PORT, errno.EPROTO),
        (WELCOME, FACTS, errno.EPROTO), (WELCOME, {**WELCOMED, "mtu": 6}, errno.EPROTO),
        (WELCOME, {**WELCOMED, "kind": "ethernet"}, errno.EPROTO),
    ],
)  # fmt: skip
def test_who_cannot_join_is_told_why_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: int, content: dict[str, Any], code: int
) -> None:
    served = Served(monkeypatch, fabric_messages.encode(kind, content))
    with pytest.raises(OSError, match="fabric 'f'") as told:
        fabric.join("f")
    assert told.value.errno == code
    assert served.ours.fileno() == -1
    served.theirs.close()


@pytest.mark.parametrize(("uid", "right"), [(0, True), (1000, True), (1001, False)])
def test_a_fabric_is_this_user_s_or_root_s(monkeypatch: pytest.MonkeyPatch, uid: int, right: bool) -> None:
    made: list[socket.socket] = []

    class Connected(socket.socket):
        def __init__(self, *kind: int) -> None:
            super().__init__(*kind)
            made.append(self)

        def connect(self, name: Any) -> None:
            assert name == "\0softhca/fabric/1000/f/adapters"

        def getsockopt(self, *_: Any) -> Any:
            return struct.pack("3i", 7, uid, 1001)

    monkeypatch.setattr(fabric.socket, "socket", Connected)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if right:
        fabric._connected("f").close()
        return
    with pytest.raises(OSError, match="another user") as told:
        fabric._connected("f")
    assert (told.value.errno, made[0].fileno()) == (errno.EPERM, -1)


@pytest.mark.parametrize(("name", "most"), list(fabric_messages.NUMBERS.items()))
def test_what_a_manager_sets_has_bounds(name: str, most: int) -> None:
    for good in (0, most):
        assert fabric_messages.port_info({**PORT, name: good})[name] == good
    for bad in (-1, most + 1, True, 1.0, "1", None):
        with pytest.raises(ValueError, match=name):
            fabric_messages.port_info({**PORT, name: bad})


def test_p_keys_have_16_bits_and_a_number() -> None:
    most = fabric_messages.MOST_PKEYS
    assert fabric_messages.port_info({**PORT, "pkeys": [0, 0xFFFF] * (most // 2)})["pkeys"][:2] == (0, 0xFFFF)
    for bad in ([1] * (most + 1), [0x10000], [-1], [True], ["1"], None, {}):
        with pytest.raises(ValueError, match="P_Keys"):
            fabric_messages.port_info({**PORT, "pkeys": bad})


def test_a_text_is_an_object_of_a_size() -> None:
    most = fabric_messages.MOST_TEXT_BYTES
    longest = fabric_messages.encode(INFO, {"a": "x" * (most - HEADER.size - len('{"a":""}'))})
    assert fabric_messages.decode(longest)[0] == INFO
    deep = HEADER.pack(INFO, 0) + b"[" * (most - HEADER.size)
    for bad in (longest + b" ", HEADER.pack(INFO, 0), HEADER.pack(INFO, 0) + b"[]", deep):
        with pytest.raises(ValueError, match=r"message|expected|Expecting"):
            fabric_messages.decode(bad)
    assert json.loads(longest[HEADER.size :])


def test_a_group_is_joined_or_left_by_its_gid() -> None:
    group = bytes(10) + b"\xff\xff" + bytes((239, 1, 2, 3))
    for member in (True, False):
        content = {"group": group.hex(), "member": member}
        assert fabric_messages.group_change(content) == (group, member)
    for bad in ({"group": bytes(16).hex(), "member": True}, {"group": group.hex(), "member": 1},
                {"group": group.hex()}, {"group": group[1:].hex(), "member": True},
                {"group": "no number", "member": True}):  # fmt: skip
        with pytest.raises(ValueError, match=r"group|member"):
            fabric_messages.group_change(bad)
