"""What can be set of sockets, for a process (`defaults`, environment) and for one socket."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from softhca.sockets.protocol import LARGEST_POOL_BYTES, SMALLEST_POOL_BYTES

_PREFIX = "SOFTHCA_SOCKETS_"
MOST_ACK_TIMEOUT = 31


@dataclass(frozen=True)
class Settings:
    """``pool_bytes``: what a peer may have written that was not read (a power of two, 16 KiB … 256 MiB).
    ``staging_bytes``: copied sends under way.  ``threshold_bytes``: above it sends begin at a page of the
    peer's pool, receives into a `PageBuffer` map, and memory that cannot change is sent as it is.
    ``direct_bytes``: above it memory that may change is, too, also where it must be waited for.
    ``chunk_bytes``: what one notification tells of at most, and half of the peer's pool.
    ``mapping``: whether receives map at all.
    ``in_memory``: whether a sender tells by writing into its peer's memory, where that takes no packet.
    ``datagrams``: whether datagrams may go by RDMA.
    ``by_cm``: connect and listen by the connection manager alone, without TCP.  ``keepalive_s``: so often
    such a connection, and any whose sender finds no room, asks whether its peer's adapter lives (0: never).
    ``ack_timeout``: of who connects, for both ends: a peer that acknowledges nothing for 16 × 4.096 µs ×
    2^this is given up (1 … 31).
    ``connect_s``: how long a peer is asked for RDMA before TCP, or UDP, is taken.  ``credit_s``: how long a
    datagram waits for room at its peer, at most, before it is sent all the same (0: never).  ``linger_s``:
    how long a close waits for what was sent, at most.
    """

    pool_bytes: int = 1 << 20
    staging_bytes: int = 512 << 10
    threshold_bytes: int = 16 << 10
    direct_bytes: int = 128 << 10
    chunk_bytes: int = 1 << 20
    mapping: bool = True
    in_memory: bool = True
    datagrams: bool = True
    by_cm: bool = False
    keepalive_s: float = 5.0
    ack_timeout: int = 14
    connect_s: float = 1.0
    credit_s: float = 0.1
    linger_s: float = 2.0

    def __post_init__(self) -> None:
        pool = self.pool_bytes
        if not SMALLEST_POOL_BYTES <= pool <= LARGEST_POOL_BYTES or pool & (pool - 1):
            raise ValueError(f"pool_bytes is a power of two, 16 KiB … 256 MiB, not {pool}")
        for name in ("staging_bytes", "chunk_bytes"):
            if not 4096 <= getattr(self, name) <= LARGEST_POOL_BYTES:
                raise ValueError(f"{name} is 4096 … 256 MiB, not {getattr(self, name)}")
        if not 1 <= self.ack_timeout <= MOST_ACK_TIMEOUT:
            raise ValueError(f"ack_timeout is 1 … {MOST_ACK_TIMEOUT}, not {self.ack_timeout}")
        amounts = (
            self.threshold_bytes, self.direct_bytes, self.connect_s, self.credit_s, self.linger_s,
            self.keepalive_s,
        )  # fmt: skip
        if min(amounts) < 0:
            raise ValueError("a size or a time is not negative")

    def with_pool(self, wanted: int) -> Settings:
        """With the smallest pool that holds ``wanted`` bytes, as far as pools go."""
        length = max(min(wanted, LARGEST_POOL_BYTES), SMALLEST_POOL_BYTES)
        return replace(self, pool_bytes=1 << (length - 1).bit_length())

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] = os.environ) -> Settings:
        """The defaults, changed by ``SOFTHCA_SOCKETS_POOL_BYTES`` and its like; ValueError."""
        found: dict[str, int | float | bool] = {}
        for name, kind in cls.__annotations__.items():
            text = variables.get(_PREFIX + name.upper(), "")
            if text:
                found[name] = text != "0" if kind == "bool" else float(text) if kind == "float" else int(text)
        return cls(**found)  # type: ignore[arg-type]
