"""A host that asks an adapter for anything and writes anything into the rings that they share.

Input: steps.  Commands whose fields name what exists, or not; doorbells; words and work entries in the pages
of its queues; packets that leave; time.  Nothing may be raised, every command gets one reply unless the host
broke the rings, and when the host has gone nothing of it may be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuzz_choices import Choices

from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import Adapter
from softhca.adapter.resources import Kind
from softhca.driver.channels import HostChannel
from softhca.machine.primitives import address_of, copy, fill
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.host import HostMemory
from softhca.memory.runs import runs_of
from softhca.queues import control_fields as control
from softhca.queues import wqe
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.layout import MAD_BYTES
from softhca.queues.ring import plan
from softhca.testing.addressing import gid
from softhca.wire.burst import Burst

STEPS = 24
MAX_BURSTS = 200
POOL_PAGES = 48
NUMBERS = tuple(control.COMMANDS)
HERE, THERE = gid(1), gid(2)
# a reply's field → the fields that name the same thing
NAMED = {
    "pd": ("pd",), "cq": ("send_cq", "recv_cq", "cq"), "qp_num": ("qp_num", "dest_qp_num"), "srq": ("srq",),
    "lkey": ("lkey",), "ah": ("ah",), "agent": ("agent",), "wq_num": ("wq_num",),
    "rwq_ind_tbl": ("rwq_ind_tbl",),
}  # fmt: skip
FIELD_KIND = {field: kind for kind, fields in NAMED.items() for field in fields}
USUAL = {
    "port_num": (1,), "ah_port_num": (1,), "qp_type": (2, 3, 4), "qp_state": (1, 2, 3, 4, 5, 6, 0),
    "path_mtu": (1,), "access": (15, 1, 7), "qp_access_flags": (15,), "max_wr": (4,), "max_sge": (2,),
    "max_send_wr": (4,), "max_recv_wr": (4,), "max_send_sge": (2,), "max_recv_sge": (2,),
    "max_inline_data": (32,), "va": (0x10000,), "length": (4096, 8192, 100), "ah_is_global": (1,),
    "is_global": (1,), "timeout": (1,), "retry_cnt": (1,), "flags": (0, 1, 2, 4, 7), "scope": (0, 1),
    "mgmt_class": (0x32, 4), "class_version": (1,), "methods_low": (0, 2, 8), "qpn": (1,),
    "wq_state": (1, 2, 0), "log_ind_tbl_size": (0, 1), "rx_hash_function": (1,),
    "rx_hash_fields_mask": (0, 255),
    "timeout_ms": (1, 0, 5), "retries": (0, 3), "attr_mask": (0x39, 0x129181, 0x121181, 1, 0x13E01, 2),
}  # fmt: skip


class Place:
    """One adapter and the memory of the hosts that come to it."""

    def __init__(self) -> None:
        limits = {
            "max_pd": 8,
            "max_mr": 8,
            "max_cq": 8,
            "max_qp": 8,
            "max_wq": 8,
            "max_srq": 8,
            "max_ah": 8,
            "max_qp_wr": 64,
        }
        self.adapter = Adapter(AdapterConfig(gids=(HERE,), active_mtu=1, max_host=2, **limits), seed=5)
        self.memory = HostMemory(64 << 20)
        self.frames = HostChannel(self.memory).frames
        self.pool = self.memory.allocate(POOL_PAGES, contiguous=True)
        self.runs = runs_of(sorted((*self.frames.control, *self.frames.doorbells, *self.pool)))
        self.base = self.memory.address_map.address(self.pool[0])
        self.burst = Burst()
        self.now = 1_000_000

    def begin(self) -> None:
        """Clean pages and a new host."""
        for first, count in self.runs:
            fill(self.memory.address_map.address(first), 0, count * PAGE_BYTES)
        self.channel = HostChannel(Again(self.memory, self.frames))  # type: ignore[arg-type]
        self.host = self.adapter.attach_host(self.channel)
        self.known: dict[str, list[int]] = {kind: [] for kind in NAMED}
        self.tag = 0
        self.shaken = False

    def end(self) -> None:
        """The host goes."""
        self.adapter.detach_host(self.host)
        left = {kind: count for kind in Kind if (count := self.adapter.resources.count(kind))}
        assert not left, left
        assert not len(self.adapter.regions)
        assert not self.adapter.queue_pairs
        assert not self.adapter.handles
        assert not self.adapter.timers.count()
        assert not self.adapter.hosts
        for window in self.adapter.port.windows.values():
            assert window.in_flight_bytes == 0
            assert not window.waiters


class Again:
    """Host memory that gives out the frames it gave before."""

    def __init__(self, memory: HostMemory, frames: Any) -> None:
        self.address_map = memory.address_map
        self._left = [list(frames.doorbells), list(frames.control)]

    def allocate(self, pages: int) -> list[int]:
        """The next of them."""
        found = self._left.pop()
        assert len(found) == pages
        return found


_places: list[Place] = []


def one_input(data: bytes) -> None:
    if not _places:
        _places.append(Place())
    place, choices = _places[0], Choices(data)
    try:
        place.begin()
        for _ in range(STEPS):
            if not choices.more:
                break
            STEP[choices.below(len(STEP))](place, choices)
        transmit(place, choices)
        place.end()
    except BaseException:
        _places.clear()
        raise


def ask(place: Place, choices: Choices) -> None:
    """A command and its reply."""
    number = choices.pick(NUMBERS)
    values = values_of(place, choices, number)
    send(place, number, values)


def build(place: Place, choices: Choices) -> None:
    """What a queue pair needs, and the queue pair: right, so that other steps have something to break."""
    kind = choices.byte()
    send(place, control.ALLOC_PD, {})
    pages = plan(4, 4 * CQE_BYTES)
    send(
        place,
        control.CREATE_CQ,
        {"entries": 4, "body_bytes": 4 * CQE_BYTES, "frames": run(place, kind, pages)},
    )
    pd, cq = place.known["pd"][-1:], place.known["cq"][-1:]
    if not pd or not cq:
        return
    mine = {"pd": pd[0], "va": 0x10000, "length": 8192, "access": 15, "frames": run(place, 0, 2)}
    send(place, control.REG_MR, mine)
    send_body, receive_body = 4 * wqe.send_bytes(2, 32), 4 * wqe.receive_bytes(2)
    send(place, control.CREATE_QP, {
        "qp_type": 2 + kind % 3, "pd": pd[0], "send_cq": cq[0], "recv_cq": cq[0], "max_send_wr": 4,
        "max_recv_wr": 4, "max_send_sge": 2, "max_recv_sge": 2, "max_inline_data": 32, "send_entries": 4,
        "send_body_bytes": send_body, "send_frames": run(place, 10, plan(4, send_body)), "recv_entries": 4,
        "recv_body_bytes": receive_body, "recv_frames": run(place, 20, plan(4, receive_body)),
    })  # fmt: skip
    if not place.known["qp_num"]:
        return
    qpn = place.known["qp_num"][-1]
    to = HERE if kind & 0x80 else THERE
    path = {"ah_dgid": to, "ah_is_global": 1, "ah_port_num": 1, "path_mtu": 1, "dest_qp_num": qpn}
    begin = {"qp_num": qpn, "port_num": 1, "qp_access_flags": 15}
    masks = {2: (0x39, 0x129181, 0x12E01), 3: (0x39, 0x101181, 0x10001), 4: (0x71, 1, 0x10001)}[2 + kind % 3]
    send(place, control.MODIFY_QP, {**begin, "attr_mask": masks[0], "qp_state": 1})
    send(place, control.MODIFY_QP, {**begin, **path, "attr_mask": masks[1], "qp_state": 2, "min_rnr_timer": 1,
                                    "max_dest_rd_atomic": 1})  # fmt: skip
    send(place, control.MODIFY_QP, {**begin, "attr_mask": masks[2], "qp_state": 3, "timeout": 1,
                                    "retry_cnt": 1, "max_rd_atomic": 1})  # fmt: skip


def run(place: Place, start: int, pages: int) -> list[tuple[int, int]]:
    """Frames of the pool."""
    first = start % (POOL_PAGES - pages) if pages < POOL_PAGES else 0
    return runs_of(place.pool[first : first + pages])


def send(place: Place, number: int, values: dict[str, Any]) -> None:
    """Through the ring; what the reply names is remembered."""
    place.tag += 1
    try:
        place.channel.commands.send(number, place.tag, values)
    except OSError:
        return
    place.adapter.kick(place.now)
    reply = place.channel.replies.take()
    broken = place.adapter.hosts[place.host].failed
    if reply is None:
        assert broken or place.channel.replies.broken or place.channel.commands.broken, (
            "a command has no reply"
        )
        return
    # a tail moved ahead publishes old commands again, and each is answered
    assert reply.tag == place.tag or place.shaken
    for kind in NAMED:
        if kind in reply.fields and number not in (control.QUERY_QP,):
            place.known[kind].append(reply.fields[kind])


def values_of(place: Place, choices: Choices, number: int) -> dict[str, Any]:
    """Fields that may mean something."""
    values: dict[str, Any] = {}
    for name, kind in control.COMMANDS[number][1]:
        how = choices.byte()
        if name == "wqs" and place.known["wq_num"]:
            values[name] = [(place.known["wq_num"][how % len(place.known["wq_num"])], how >> 6)]
        elif name == "rx_hash_key":
            values[name] = bytes(40 if how < 0xF0 else how & 15)
        elif kind == "runs":
            values[name] = (
                run(place, how, 1 + (how >> 5)) if how < 0xF0 else [(choices.number(4), choices.number(4))]
            )
        elif kind == "gid":
            values[name] = (HERE, THERE, choices.block(16))[how % 3]
        elif kind == "bytes":
            values[name] = choices.run()
            if name == "mad" and how < 0xF0:
                values[name] = mad_of(values[name], how)
        elif kind == "counters":
            values[name] = ()
        else:
            values[name] = number_for(place, choices, name, kind, how)
    return values


def mad_of(body: bytes, how: int) -> bytes:
    """A datagram of a class, with a method that may have a response."""
    header = bytes([1, (0x32, 4)[how & 1], 1, (1, 2, 3, 0x81)[how >> 1 & 3], 0, 0, 0, 0])
    return (header + body).ljust(MAD_BYTES, b"\0")[:MAD_BYTES]


def number_for(place: Place, choices: Choices, name: str, kind: str, how: int) -> int:
    """A number: usual for its field, something that exists, small, or any."""
    if how < 0xC0:
        if known := place.known.get(FIELD_KIND.get(name, ""), []):
            return known[how % len(known)]
        short = name.removeprefix("send_").removeprefix("recv_")
        if short in ("entries", "body_bytes"):
            return (1 + how % 8) * (1 if short == "entries" else CQE_BYTES)
        usual = USUAL.get(name, (0,))
        return usual[how % len(usual)]
    if how < 0xE0:
        return how & 0x0F
    return choices.number({"u8": 1, "u16": 2, "u32": 4, "u64": 8}[kind])


def scribble(place: Place, choices: Choices) -> None:
    """Anything into a page of the pool: often a ring's counters."""
    page, where = choices.below(POOL_PAGES), choices.pick((0, 64, 128, 8, 16))
    data = choices.block(8) if choices.byte() & 3 == 0 else choices.byte().to_bytes(8, "little")
    if choices.byte() & 7 == 0:
        where = choices.number(2) % (PAGE_BYTES - 8)
    copy(place.base + page * PAGE_BYTES + where, address_of(data, writable=False), 8)


def post(place: Place, choices: Choices) -> None:
    """A work entry as `build` lays queues out, its counter, and the doorbell."""
    entry = bytearray(wqe.send_bytes(2, 32))
    key = (place.known["lkey"] or [0])[-1]
    opcode, flags = choices.byte() % 11, choices.byte() & 0x1F
    n = wqe.encode_send(entry, opcode, flags & 7, 0, 7, 0x10000 + choices.byte(), key, 0, 0, 0, 0, 0,
                        [(0x10000, choices.byte(), key)])  # fmt: skip
    at = choices.byte()
    if at < n:
        entry[at] ^= choices.byte()
    ring_base = place.base + 10 * PAGE_BYTES
    copy(ring_base + 2 * PAGE_BYTES, address_of(entry), n)
    words = bytearray((n << 32).to_bytes(8, "little"))
    copy(ring_base + PAGE_BYTES + 8 * (choices.byte() & 3), address_of(words), 8)
    words[:] = (1 + (choices.byte() & 3)).to_bytes(8, "little")
    copy(ring_base, address_of(words), 8)
    ring_doorbell(place, choices)


def ring_doorbell(place: Place, choices: Choices) -> None:
    """A doorbell, or what no host writes there."""
    how = choices.byte()
    if how < 0xF0:
        place.channel.doorbells.ring(how & 7)
    else:
        frame = place.channel.frames.doorbells[choices.byte() % len(place.channel.frames.doorbells)]
        data = choices.block(8)
        at = place.channel.address_map.address(frame) + (0, 64, 8, 16)[how & 3]
        copy(at, address_of(data, writable=False), 8)
    place.adapter.kick(place.now)


def shake(place: Place, choices: Choices) -> None:
    """Anything into the control rings' first words."""
    starts = (0, choices.byte() % len(place.channel.frames.control))
    frame = place.channel.frames.control[starts[choices.byte() & 1]]
    data = choices.block(8) if choices.byte() & 1 else choices.byte().to_bytes(8, "little")
    at = place.channel.address_map.address(frame) + 64 * (choices.byte() & 1)
    copy(at, address_of(data, writable=False), 8)
    place.shaken = True
    place.adapter.kick(place.now)


def transmit(place: Place, choices: Choices) -> None:
    """Packets leave, and time passes."""
    for _ in range(MAX_BURSTS):
        if not place.adapter.transmit(1, place.burst, place.now):
            break
    else:
        raise AssertionError("the engine transmits without end")
    place.now += choices.byte() << 12
    place.adapter.expire(place.now)
    place.adapter.take_notifications()


STEP = (ask, ask, ask, build, build, scribble, scribble, post, post, ring_doorbell, shake, transmit)


def seeds() -> Iterator[bytes]:
    """A life, and every command."""
    for kind in (0, 1, 2, 0x80, 0x81, 0x82):
        yield bytes([3, kind]) + bytes([7, 2, 1, 0, 4, 255, 0, 0, 0, 11, 1]) * 6
    for number in range(len(NUMBERS)):
        for how in (0, 1, 0xC1):
            yield bytes([3, 1, 0, number]) + bytes([how]) * 70 + bytes([11, 1])
