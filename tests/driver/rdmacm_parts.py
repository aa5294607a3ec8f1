"""As much of an RDMA CM identifier, and of what it stands on, as rules of its parts ask for."""

from __future__ import annotations

import ipaddress
from types import SimpleNamespace
from typing import Any

from softhca.driver.rdmacm import states
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.routes import Route
from softhca.management.ip_service import TCP


class Lock:
    """One that nobody else has."""

    def __enter__(self) -> None:
        """It is held."""

    def __exit__(self, *error: object) -> None:
        """It is free."""


def address(text: str, port: int = 0) -> SocketAddress:
    return SocketAddress(ipaddress.ip_address(text).packed, port)


def owner_of(**values: Any) -> Any:
    """As much of an identifier as its parts ask for."""
    place = SimpleNamespace(
        max_responder_resources=16, max_initiator_depth=8, mtu=5, port=1, gid_index=1, is_native=False,
        address=address("127.9.0.1"), device=Device(),
    )  # fmt: skip
    found: Any = SimpleNamespace(
        lock=Lock(), place=place, local=place, space=TCP, connected=True, psn=7, traffic_class=0,
        ack_timeout=None, route=Route(), queue_pair=None, state=states.CONNECTED,
        source=address("127.9.0.1", 7), destination=address("127.9.0.2", 8),
        peer_gid=bytes(16), posted=[],
    )  # fmt: skip
    found.post = lambda notice, here=True: found.posted.append(notice)
    for name, value in values.items():
        setattr(found, name, value)
    return found


class Device:
    """Whatever is done with it is ``noted``."""

    alive = True
    lost = False

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.events = SimpleNamespace(watch=lambda at_end: None, unwatch=lambda at_end: None, waits=True)

    def wake_waiters(self) -> None:
        self.noted.append("wake")

    def attach_mcast(self, *what: Any) -> None:
        self.noted.append(("attach", *what))

    def detach_mcast(self, *what: Any) -> None:
        self.noted.append(("detach", *what))
