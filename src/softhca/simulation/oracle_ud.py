"""What unreliable datagrams promise: whole or not at all, to whom they were sent, from whom they say."""

from __future__ import annotations

from dataclasses import dataclass

from softhca.simulation.oracle import Report


@dataclass(slots=True)
class _Datagram:
    source_qp: int
    source_gid: bytes
    destination_qp: int
    immediate: int | None
    arrived: int = 0


class DatagramOracle:
    """All datagrams of a world; their bytes are like no other's.

    ``once``: the network repeats nothing; ``lossless``: it loses and damages nothing.
    """

    def __init__(self, report: Report, once: bool, lossless: bool) -> None:
        self.report = report
        self.once = once
        self.lossless = lossless
        self._sent: dict[bytes, _Datagram] = {}

    def post(
        self, data: bytes, source_qp: int, source_gid: bytes, destination_qp: int, immediate: int | None
    ) -> None:
        """One datagram is sent."""
        self._sent[data] = _Datagram(source_qp, source_gid, destination_qp, immediate)

    def deliver(self, data: bytes, qp: int, source_qp: int, gid: bytes, immediate: int | None) -> None:
        """A receive of ``qp`` completed; ``gid`` is that of the sender, as the receiver sees it."""
        datagram = self._sent.get(data)
        if datagram is None:
            self.report.fail("datagrams whole or not at all", f"QP {qp}: {len(data)} bytes that nobody sent")
            return
        datagram.arrived += 1
        seen = (source_qp, gid, qp, immediate)
        meant = (datagram.source_qp, datagram.source_gid, datagram.destination_qp, datagram.immediate)
        if seen != meant:
            self.report.fail("datagrams from their source to their destination", f"{seen} instead of {meant}")
        if self.once and datagram.arrived > 1:
            self.report.fail("nothing is repeated without cause", f"QP {qp}: a datagram came twice")

    def finish(self) -> None:
        """The world is at rest."""
        missing = sum(not datagram.arrived for datagram in self._sent.values())
        if self.lossless and missing:
            self.report.fail("nothing is lost without cause", f"{missing} of {len(self._sent)} datagrams")
