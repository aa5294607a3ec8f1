"""Identities of the capture against our own: queue pair numbers, remote keys and remote addresses."""

from __future__ import annotations

from dataclasses import replace

from softhca.wire.deth import Deth
from softhca.wire.packet import Transport

MASK64 = 0xFFFFFFFFFFFFFFFF
Change = tuple[int, int]  # from, to


class Names:
    """What to put in the place of what, in the packets of one direction.

    ``keys`` maps an R_Key to the one in its place and to what must be added to addresses under it.  A name
    that is not known stays as it is, and so shows in the comparison.
    """

    def __init__(self, dest_qp: Change, source_qp: Change, keys: dict[int, Change] | None = None) -> None:
        self.dest_qp = dest_qp
        self.source_qp = source_qp
        self.keys = keys or {}

    def inverse(self) -> Names:
        """The way back."""
        keys = {new: (old, -shift) for old, (new, shift) in self.keys.items()}
        assert len(keys) == len(self.keys)
        return Names(self.dest_qp[::-1], self.source_qp[::-1], keys)

    def address(self, key: int, va: int) -> int:
        """The address in the place of ``va`` under ``key``."""
        return (va + self.keys.get(key, (key, 0))[1]) & MASK64

    def apply(self, transport: Transport) -> Transport:
        """The same packet with the other names; its ICRC is left as it was."""
        bth = transport.bth
        if bth.dest_qp == self.dest_qp[0]:
            bth = replace(bth, dest_qp=self.dest_qp[1])
        extensions = []
        for header in transport.extensions:
            if hasattr(header, "rkey"):
                key = self.keys.get(header.rkey, (header.rkey, 0))[0]
                if hasattr(header, "va"):
                    header = replace(header, va=self.address(header.rkey, header.va))
                header = replace(header, rkey=key)
            elif isinstance(header, Deth) and header.source_qp == self.source_qp[0]:
                header = replace(header, source_qp=self.source_qp[1])
            extensions.append(header)
        return replace(transport, bth=bth, extensions=tuple(extensions))
