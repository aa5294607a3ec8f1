"""What observers of a network are shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_INFINIBAND, LINKTYPE_RAW
from softhca.wire.errors import WireError
from softhca.wire.framing import NATIVE
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import Packet, captured, decode

if TYPE_CHECKING:
    from softhca.testing.node import Node

SENT, LOST, RECEIVED = "sent", "lost", "received"
INJECTED = "injected"
TAMPERED = "tampered"
NO_RECEIVER = "no receiver"
NO_ROOM = "no room"


@dataclass(frozen=True)
class Datagram:
    """A packet at one moment of its way.

    ``event``: `SENT` by ``source``; `LOST` on the way to ``target``; `RECEIVED` by ``target``.  ``what`` says
    how it was lost (``loss``, ``burst``, ``flap``, ``partition``, `TAMPERED`, `NO_RECEIVER`, `NO_ROOM`) or in
    what shape it arrives (``passed``, ``duplicated``, ``reordered``, ``corrupted``, ``truncated``,
    `INJECTED`).  ``data`` are its bytes: BTH … ICRC on RoCE links, LRH … VCRC on native ones.  ``route`` is
    its sender's (None: it was injected).  Packets that were sent in one burst have the same ``burst``, a
    number of its network's.
    """

    event: str
    time_ns: int
    source: Node | None
    target: Node | None
    route: Any
    data: bytes
    what: str = ""
    burst: int = 0

    @cached_property
    def packet(self) -> Packet | None:
        """Its headers and payload; None for one that cannot be decoded, or a raw one."""
        if self.route is None:
            return None
        link_type = LINKTYPE_INFINIBAND if self.route.framing == NATIVE else LINKTYPE_RAW
        try:
            return decode(captured(self.route, self.data), link_type)
        except WireError:
            return None

    @property
    def bth(self) -> Bth:
        """Its BTH; ValueError for one without."""
        if self.packet is None:
            raise ValueError("a packet without transport headers")
        return self.packet.transport.bth

    @property
    def opcode(self) -> str:
        """Its opcode's name, as in ``RC_SEND_ONLY``."""
        return OPCODES[self.bth.opcode].name

    @property
    def payload_bytes(self) -> int:
        """Length of its payload."""
        return 0 if self.packet is None else len(self.packet.transport.payload)
