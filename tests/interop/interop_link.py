"""A requester and a responder, one on each side, and what a cell does with them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from interop_peer import Peer

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
MW_BIND = 16
ALL_RIGHTS = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
SUCCESS, LOC_LEN_ERR, FLUSHED = 0, 1, 5
REM_INV_REQ, REM_ACCESS, REM_OP, RETRY_EXCEEDED, RNR_EXCEEDED = 9, 10, 11, 12, 13
STATE_RTS, STATE_ERR = 3, 6
QKEY = 0x1234567
PATIENCE_S = 30.0
GRH_VALID, WITH_IMMEDIATE, WITH_INVALIDATE = 1, 2, 8  # ibv_wc_flags


class CellError(Exception):
    """What was seen is not what must be."""


def expect(what: str, seen: Any, wanted: Any) -> None:
    """Raises :class:`CellError` when they differ."""
    if seen != wanted:
        raise CellError(f"{what}: {seen!r}, not {wanted!r}")


@dataclass(frozen=True)
class Setting:
    """IP version and path MTU of a cell."""

    version: int
    mtu_bytes: int

    @property
    def name(self) -> str:
        return f"v{self.version}/{self.mtu_bytes}"


@dataclass
class Attributes:
    """What a queue pair is connected with, apart from its peer."""

    qp_access_flags: int = ALL_RIGHTS
    max_rd_atomic: int = 8
    max_dest_rd_atomic: int = 8
    min_rnr_timer: int = 12  # 0.64 ms
    timeout: int = 17  # 0.54 s: a guest without KVM answers slowly
    retry_cnt: int = 7
    rnr_retry: int = 7
    hop_limit: int = 64
    flow_label: int = 0
    traffic_class: int = 0


UNHURRIED = Attributes(timeout=19)
"""For cells in which nothing may time out: 4.3 s, which no guest takes unless something is really missing."""


@dataclass
class End:
    """One side of a link: the program there and the address by which it is reached."""

    peer: Peer
    gid: str
    qps: dict[str, int] = field(default_factory=dict)

    @property
    def gid_index(self) -> int:
        return self.peer.gids[self.gid]

    def ask(self, what: str, **words: Any) -> Any:
        """As `Peer.ask`."""
        return self.peer.ask(what, **words)

    def memory(self, name: str, length: int, seed: int | None = None, access: int = ALL_RIGHTS) -> Any:
        """Register memory; address and keys."""
        return self.ask("memory", name=name, length=length, access=access, seed=seed)

    def holds(self, name: str, seed: int, length: int, offset: int = 0) -> None:
        """The memory must hold the pattern of ``seed`` there."""
        seen = self.ask("digest", name=name, offset=offset, length=length)
        wanted = self.ask("pattern_digest", seed=seed, length=length)
        expect(f"data in {self.peer.name}'s {name}, {length} bytes", seen, wanted)

    def empty(self, name: str, offset: int, length: int) -> None:
        """The memory must hold zeros there."""
        seen = bytes.fromhex(self.ask("get", name=name, offset=offset, length=length)["data"])
        expect(f"{self.peer.name}'s {name} at {offset}", any(seen), False)

    def completions(self, queue: str, statuses: Sequence[int], patience_s: float = PATIENCE_S) -> list[Any]:
        """So many completions as ``statuses``, which they must have in that order."""
        found = self.ask("poll", name=queue, count=len(statuses), patience_s=patience_s)["completions"]
        seen = [each["status"] for each in found]
        expect(f"statuses of {self.peer.name}'s {queue}", seen, list(statuses))
        return list(found)


class Link:
    """A requester's and a responder's queue pair, connected; more can be added."""

    def __init__(
        self,
        requester: Peer,
        responder: Peer,
        addresses: tuple[str, str],
        setting: Setting,
        service: str = "RC",
        attributes: Attributes | None = None,
        psn: int = 0x123456,
        depth: int = 64,
        srq_depth: int = 0,
    ) -> None:
        requester.ask("reset")
        responder.ask("reset")
        ours, theirs = (canonical(address) for address in addresses)
        self.requester, self.responder = End(requester, ours), End(responder, theirs)
        self.setting = setting
        self.service = service
        self.attributes = attributes or Attributes()
        self.depth = depth
        self.srq = ""
        if srq_depth:
            self.srq = "shared"
            self.responder.ask("srq", name=self.srq, depth=srq_depth)
        self.add("qp", psn)

    def add(self, name: str, psn: int = 0x123456) -> None:
        """A pair of queue pairs."""
        for end in (self.requester, self.responder):
            words = {"srq": self.srq} if end is self.responder else {}
            end.qps[name] = end.ask("qp", name=name, service=self.service, depth=self.depth, **words)["qpn"]
        self.join(name, psn)

    def join(self, name: str, psn: int) -> None:
        """Take both queue pairs to RTS, towards each other."""
        self.connect(self.requester, self.responder, name, psn, psn ^ 0xFF)
        self.connect(self.responder, self.requester, name, psn ^ 0xFF, psn)

    def connect(self, end: End, other: End, name: str, sq_psn: int, rq_psn: int) -> None:
        """Take one end's queue pair to RTS."""
        end.ask(
            "connect",
            name=name,
            service=self.service,
            gid=other.gid,
            gid_index=end.gid_index,
            dest_qp_num=other.qps[name],
            sq_psn=sq_psn,
            rq_psn=rq_psn,
            mtu=self.setting.mtu_bytes,
            qkey=QKEY,
            **vars(self.attributes),
        )

    def receive(self, wr_id: int, sg: list[Any], name: str = "qp", count: int = 1) -> None:
        """Post receives at the responder."""
        self.responder.ask("receive", name=self.srq or name, wr_id=wr_id, sg=sg, count=count)

    def send(self, wr_id: int, opcode: str, sg: list[Any], name: str = "qp", **words: Any) -> None:
        """Post a request at the requester; a datagram goes to the responder."""
        if self.service == "UD":
            other = self.responder
            words = {
                "gid": other.gid,
                "gid_index": self.requester.gid_index,
                "qpn": other.qps[name],
                "qkey": QKEY,
            } | words
        self.requester.ask("send", name=name, wr_id=wr_id, opcode=opcode, sg=sg, **words)

    def sent(self, *statuses: int, name: str = "qp", patience_s: float = PATIENCE_S) -> list[Any]:
        """The requester's completions."""
        return self.requester.completions(name, statuses or (SUCCESS,), patience_s)

    def received(self, *statuses: int, name: str = "qp", patience_s: float = PATIENCE_S) -> list[Any]:
        """The responder's completions."""
        return self.responder.completions(f"{name}:receive", statuses or (SUCCESS,), patience_s)


def canonical(address: str) -> str:
    """The GID of an address as a peer's ``gids`` have it."""
    return str(ipaddress.IPv6Address(address if ":" in address else f"::ffff:{address}"))
