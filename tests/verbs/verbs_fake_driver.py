"""A device driver in memory: records what it is asked, and refuses as a real one would."""

import errno
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from softhca.driver.errors import DriverError, PostError
from softhca.driver.posting import swapped
from softhca.machine.primitives import address_of, bytes_at
from softhca.verbs.enums import IBV_WR_BIND_MW

GID = bytes(10) + b"\xff\xff\x7f\x00\x00\x02"
OTHER_GID = bytes(10) + b"\xff\xff\x7f\x00\x00\x03"


@dataclass
class FakeCompletion:
    wr_id: int = 0
    status: int = 0
    opcode: int = 0
    vendor_err: int = 0
    byte_len: int = 0
    imm_data: int = 0
    qp_num: int = 0
    src_qp: int = 0
    wc_flags: int = 0
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0
    timestamp_ns: int = 0


def copied(completion: FakeCompletion, kind: type) -> Any:
    made = kind()
    for name, value in vars(completion).items():
        setattr(made, name, value)
    return made


@dataclass
class FakeKey:
    handle: int
    lkey: int
    rkey: int


class FakeHostBuffer:
    def __init__(self, driver: "FakeDriver", length: int) -> None:
        self.memory = bytearray(length)
        self.address, self.length, self.driver = address_of(self.memory), length, driver

    def free(self) -> None:
        self.driver.log("free", self.length)


class FakeElement:
    """A CQ, SRQ or QP: numbered, alive until destroyed, in use by others."""

    kind = ""

    def __init__(self, driver: "FakeDriver") -> None:
        driver.refuse_if_asked(f"create_{self.kind}")
        self.driver, self.users, self.destroyed = driver, 0, False
        self.number = driver.next_number()
        driver.live.append((self.kind, self.number))

    def destroy(self) -> None:
        self.driver.refuse_if_asked(f"destroy_{self.kind}")
        if self.users:
            raise DriverError(errno.EBUSY, f"the {self.kind} is in use")
        assert not self.destroyed, "destroyed twice"
        self.destroyed = True
        self.driver.live.remove((self.kind, self.number))
        self.driver.log(f"destroy_{self.kind}", self.number)


class FakeCq(FakeElement):
    kind = "cq"

    def __init__(self, driver: "FakeDriver", entries: int, channel: Any) -> None:
        if entries < 1:
            raise DriverError(errno.EINVAL, "a CQ has entries")
        super().__init__(driver)
        self.entries, self.channel = entries, channel
        self.completions: deque[FakeCompletion] = deque()
        self.armed: list[bool] = []

    def poll(self, count: int, kind: type = FakeCompletion, network_order: bool = False) -> list[Any]:
        self.driver.refuse_if_asked("poll")
        taken = [self.completions.popleft() for _ in range(min(count, len(self.completions)))]
        if kind is not FakeCompletion:
            taken = [copied(completion, kind) for completion in taken]
        for completion in taken:
            if network_order and completion.wc_flags & 2:
                completion.imm_data = socket.htonl(completion.imm_data)
        return taken

    def advance(self, entry: Any) -> bool:
        found = self.poll(1)
        for name, value in vars(found[0]).items() if found else ():
            setattr(entry, name, value)
        return bool(found)

    def arm(self, solicited: bool) -> None:
        self.armed.append(solicited)

    def resize(self, entries: int) -> None:
        if entries < len(self.completions):
            raise DriverError(errno.EINVAL, "more completions are waiting")
        self.entries = entries


class FakeSrq(FakeElement):
    kind = "srq"

    def __init__(self, driver: "FakeDriver", pd: int, max_wr: int, max_sge: int, limit: int) -> None:
        super().__init__(driver)
        self.pd, self.max_wr, self.max_sge, self.limit = pd, max_wr, max_sge, limit
        self.posted: list[tuple[int, Any]] = []

    def post(self, wr_id: int, sges: Any) -> None:
        if len(self.posted) == self.max_wr:
            raise DriverError(errno.ENOMEM, "the SRQ is full")
        self.posted.append((wr_id, sges))

    def modify(self, max_wr: int | None, limit: int | None) -> None:
        self.driver.log("modify_srq", max_wr, limit)
        self.max_wr = self.max_wr if max_wr is None else max_wr
        self.limit = self.limit if limit is None else limit

    def query(self) -> dict[str, int]:
        return {"max_wr": self.max_wr, "max_sge": self.max_sge, "srq_limit": self.limit}


class FakeQp(FakeElement):
    kind = "qp"

    def __init__(
        self,
        driver: "FakeDriver",
        pd: int,
        kind: int,
        send_cq: FakeCq,
        recv_cq: FakeCq,
        srq: FakeSrq | None,
        caps: tuple[int, ...],
        signal_all: bool,
    ) -> None:
        super().__init__(driver)
        self.pd, self.type, self.queues, self.signal_all = pd, kind, (send_cq, recv_cq, srq), signal_all
        names = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")
        self.caps = dict(zip(names, caps, strict=True))
        self.caps["max_send_wr"] += 1  # a device may give more than was asked for
        self.attributes: dict[str, Any] = {"qp_state": 0}
        self.modified: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.received: list[tuple[int, Any]] = []
        self.rings = 0
        for queue in self._used():
            queue.users += 1

    def _used(self) -> list[FakeElement]:
        return [queue for queue in self.queues if queue is not None]

    def modify(self, attributes: dict[str, Any]) -> None:
        self.driver.refuse_if_asked("modify_qp")
        self.modified.append(dict(attributes))
        self.attributes.update(attributes)

    def query(self) -> dict[str, Any]:
        return dict(self.attributes)

    def post_send(
        self,
        opcode: int,
        flags: int,
        imm: int,
        wr_id: int,
        remote_va: int,
        rkey: int,
        compare: int,
        swap: int,
        ah: int,
        qpn: int,
        qkey: int,
        sges: Any,
        inline: bytes | None,
    ) -> None:
        if len(self.sent) == self.caps["max_send_wr"]:
            raise DriverError(errno.ENOMEM, "the send queue is full")
        wr_id.to_bytes(8, "little")
        self.sent.append(
            {
                "opcode": opcode,
                "flags": flags,
                "imm": imm,
                "wr_id": wr_id,
                "remote_va": remote_va,
                "rkey": rkey,
                "compare": compare,
                "swap": swap,
                "ah": ah,
                "qpn": qpn,
                "qkey": qkey,
                "sges": sges,
                "inline": inline,
            }
        )

    def post_chain(self, first: Any) -> bool:
        before = len(self.sent)
        try:
            self._post_each(first)
        finally:
            if len(self.sent) > before:
                self.ring()
        return any(each["opcode"] == IBV_WR_BIND_MW for each in self.sent[before:])

    def _post_each(self, wr: Any) -> None:
        while wr is not None:
            flags, sges = wr.send_flags, wr.sges
            inline = sges if isinstance(sges, bytes) else None
            if flags & 8 and inline is None:
                inline = b"".join(bytes_at(address, n) for address, n, _ in sges)
            imm = swapped(wr.imm_data) if wr.opcode in (1, 3) else wr.imm_data
            ah = 0 if wr.ah is None else wr.ah.number
            remote = wr.remote_addr, wr.remote_rkey, wr.compare_add, wr.swap
            peer = ah, wr.remote_qpn, wr.remote_qkey
            try:
                if flags & ~15:
                    raise DriverError(errno.EINVAL, "there are no such send flags")
                self.post_send(int(wr.opcode), flags, imm, wr.wr_id, *remote, *peer, sges, inline)
            except DriverError as error:
                raise PostError(error.errno, error.message, wr) from None
            wr = wr.following

    def post_receives(self, wr: Any) -> None:
        while wr is not None:
            try:
                self.post_recv(wr.wr_id, wr.sges)
            except DriverError as error:
                raise PostError(error.errno, error.message, wr) from None
            wr = wr.following

    def post_recv(self, wr_id: int, sges: Any) -> None:
        if len(self.received) == self.caps["max_recv_wr"]:
            raise DriverError(errno.ENOMEM, "the receive queue is full")
        wr_id.to_bytes(8, "little")
        self.received.append((wr_id, sges))

    def ring(self) -> None:
        self.rings += 1

    def destroy(self) -> None:
        super().destroy()
        for queue in self._used():
            queue.users -= 1


@dataclass
class FakeDriver:
    """Implements the driver's contract; ``refusals`` maps a command to the errno of its next refusal."""

    name: str = "fake0"
    guid: int = 0x0200_00FF_7F00_0002
    alive: bool = True
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    live: list[tuple[str, int]] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    events: deque[tuple[int, int]] = field(default_factory=deque)
    fired: deque[FakeCq] = field(default_factory=deque)
    registrations: dict[int, dict[str, Any]] = field(default_factory=dict)
    address_vectors: dict[int, dict[str, Any]] = field(default_factory=dict)
    progressed: int = 0
    looked: int = 0
    numbers: int = 0
    opened: int = 1

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def log(self, *call: Any) -> None:
        self.calls.append(call)

    def refuse_if_asked(self, command: str) -> None:
        if command in self.refusals:
            raise DriverError(self.refusals.pop(command), f"{command} refused")

    def closing(self) -> None:
        """Nothing here waits."""

    def close(self) -> None:
        self.log("close")
        self.alive = False

    def query_device(self) -> dict[str, Any]:
        self.refuse_if_asked("query_device")
        return {
            "fw_ver": "1.2",
            "node_guid": self.guid,
            "sys_image_guid": self.guid,
            "max_qp": 7,
            "atomic_cap": 1,
            "phys_port_cnt": 1,
            "max_raw_ipv6_qp": 3,
            "device_cap_flags": 0x20,
        }

    def query_port(self, n: int) -> dict[str, Any]:
        if n != 1:
            raise DriverError(errno.EINVAL, f"port_num = {n}: there is no such port")
        return {
            "state": 4,
            "max_mtu": 5,
            "active_mtu": 3,
            "gid_tbl_len": 3,
            "pkey_tbl_len": 1,
            "link_layer": 2,
        }

    def query_gid(self, port: int, index: int) -> bytes:
        return (OTHER_GID, GID, bytes(16))[index]

    def query_pkey(self, port: int, index: int) -> int:
        return 0x8001

    def query_counters(self, port: int = 0, qp: int = 0) -> dict[str, int]:
        return {"port": port, "qp": qp}

    def alloc_pd(self) -> int:
        self.refuse_if_asked("alloc_pd")
        number = self.next_number()
        self.live.append(("pd", number))
        return number

    def dealloc_pd(self, pd: int) -> None:
        if any(each["pd"] == pd for each in (*self.registrations.values(), *self.address_vectors.values())):
            raise DriverError(errno.EBUSY, "the PD is in use")
        self.live.remove(("pd", pd))
        self.log("dealloc_pd", pd)

    def reg_mr(
        self, pd: int, address: int, length: int, access: int, iova: int | None = None, buffer: Any = None
    ) -> FakeKey:
        self.refuse_if_asked("reg_mr")
        handle = self.next_number()
        self.live.append(("mr", handle))
        self.registrations[handle] = {
            "pd": pd,
            "address": address,
            "length": length,
            "access": access,
            "iova": iova,
            "buffer": buffer,
        }
        return FakeKey(handle, handle << 8, handle << 8)

    def reg_implicit_mr(self, pd: int, access: int, held: bool = False) -> FakeKey:
        key = self.reg_mr(pd, 0, (1 << 64) - 1, access)
        self.registrations[key.handle]["held"] = held
        return key

    def advise_mr(self, pd: int, advice: int, flags: int, elements: Any) -> None:
        self.log("advise_mr", pd, advice, flags, elements)

    def rereg_mr(self, handle: int, flags: int, pd: int, address: int, length: int, access: int) -> FakeKey:
        self.refuse_if_asked("rereg_mr")
        self.log("rereg_mr", handle, flags, pd, address, length, access)
        self.registrations[handle]["pd"] = pd
        return FakeKey(handle, handle << 8 | 1, handle << 8 | 1)

    def dereg_mr(self, handle: int) -> None:
        self.refuse_if_asked("dereg_mr")
        self.live.remove(("mr", handle))
        del self.registrations[handle]
        self.log("dereg_mr", handle)

    def alloc_host_memory(self, length: int, access: int = 0) -> FakeHostBuffer:
        return FakeHostBuffer(self, length)

    def create_cq(self, entries: int, channel: Any = None) -> FakeCq:
        return FakeCq(self, entries, channel)

    def create_srq(
        self, pd: int, max_wr: int, max_sge: int, limit: int, cq: FakeCq | None = None, xrcd: int = 0
    ) -> FakeSrq:
        return FakeSrq(self, pd, max_wr, max_sge, limit)

    def create_qp(
        self,
        pd: int,
        kind: int,
        send_cq: FakeCq,
        recv_cq: FakeCq,
        srq: FakeSrq | None,
        max_send_wr: int,
        max_recv_wr: int,
        max_send_sge: int,
        max_recv_sge: int,
        max_inline: int,
        signal_all: bool,
        create_flags: int = 0,
        xrcd: int = 0,
        rdd: int = 0,
    ) -> FakeQp:
        return FakeQp(
            self,
            pd,
            kind,
            send_cq,
            recv_cq,
            srq,
            (max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline),
            signal_all,
        )

    def create_ah(self, pd: int, ah_attr: dict[str, Any]) -> int:
        self.refuse_if_asked("create_ah")
        number = self.next_number()
        self.live.append(("ah", number))
        self.address_vectors[number] = {"pd": pd, **ah_attr}
        return number

    def destroy_ah(self, number: int) -> None:
        self.live.remove(("ah", number))
        del self.address_vectors[number]
        self.log("destroy_ah", number)

    def next_event(self, timeout_s: float | None = None) -> tuple[int, int] | None:
        self.log("next_event", timeout_s)
        return self.events.popleft() if self.events else None

    def wake_waiters(self) -> None:
        """Nobody waits here."""

    def close_channel(self, channel: Any) -> None:
        """Nobody waits here."""

    def would_block(self, channel: Any = None) -> bool:
        return True

    def wait_completion(
        self, channel: Any, timeout_s: float | None = None, ended: Any = None
    ) -> FakeCq | None:
        self.log("wait_completion", channel, timeout_s)
        return self.fired.popleft() if self.fired else None

    def progress(self) -> None:
        self.progressed += 1

    def look(self) -> None:
        self.looked += 1


class FakeRegistry:
    """Two devices; ``drivers`` keeps what was opened."""

    def __init__(self) -> None:
        self.drivers: list[FakeDriver] = []
        self.refusal: DriverError | None = None

    def names(self) -> list[str]:
        return ["fake0", "fake1"]

    def open_device(self, name: str) -> FakeDriver:
        if self.refusal is not None:
            raise self.refusal
        self.drivers.append(FakeDriver(name))
        return self.drivers[-1]
