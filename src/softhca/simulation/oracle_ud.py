"""What unreliable datagrams promise: whole or not at all, to whom they were sent, from whom they say.

What is sent to a group every queue pair of it gets once, but for the one that sent it (C10-58).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from softhca.simulation.oracle import Report

GROUP_QP = 0xFFFFFF

Member = tuple[bytes, int]
"""(GID, queue pair)"""


@dataclass(slots=True)
class _Datagram:
    source_qp: int
    source_gid: bytes
    destination_qp: int
    immediate: int | None
    arrived: dict[Member, int] = field(default_factory=dict)


class DatagramOracle:
    """All datagrams of a world; their bytes are like no other's.

    ``once``: the network repeats nothing; ``lossless``: it loses and damages nothing.
    """

    def __init__(self, report: Report, once: bool, lossless: bool) -> None:
        self.report = report
        self.once = once
        self.lossless = lossless
        self._sent: dict[bytes, _Datagram] = {}
        self._group: set[Member] = set()

    def join(self, member: Member) -> None:
        """A queue pair receives what is sent to the group."""
        self._group.add(member)

    def post(
        self, data: bytes, source_qp: int, source_gid: bytes, destination_qp: int, immediate: int | None
    ) -> None:
        """One datagram is sent; ``destination_qp`` may be `GROUP_QP`."""
        self._sent[data] = _Datagram(source_qp, source_gid, destination_qp, immediate)

    def deliver(self, data: bytes, at: Member, source_qp: int, gid: bytes, immediate: int | None) -> None:
        """A receive of the queue pair ``at`` completed; ``gid`` is that of the sender, as it sees it."""
        qp = at[1]
        datagram = self._sent.get(data)
        if datagram is None:
            self.report.fail("datagrams whole or not at all", f"QP {qp}: {len(data)} bytes that nobody sent")
            return
        datagram.arrived[at] = datagram.arrived.get(at, 0) + 1
        to_group = datagram.destination_qp == GROUP_QP
        seen = (source_qp, gid, GROUP_QP if to_group else qp, immediate)
        meant = (datagram.source_qp, datagram.source_gid, datagram.destination_qp, datagram.immediate)
        if seen != meant:
            self.report.fail("datagrams from their source to their destination", f"{seen} instead of {meant}")
        if to_group and at not in self._others(datagram):
            self.report.fail("datagrams of a group for its other members", f"QP {qp} got one of {meant}")
        if self.once and datagram.arrived[at] > 1:
            self.report.fail("nothing is repeated without cause", f"QP {qp}: a datagram came twice")

    def _others(self, datagram: _Datagram) -> set[Member]:
        """The members of the group but for the sender."""
        return self._group - {(datagram.source_gid, datagram.source_qp)}

    def finish(self) -> None:
        """The world is at rest."""
        missing = 0
        for datagram in self._sent.values():
            if datagram.destination_qp == GROUP_QP:
                missing += bool(self._others(datagram) - datagram.arrived.keys())
            else:
                missing += not datagram.arrived
        if self.lossless and missing:
            self.report.fail("nothing is lost without cause", f"{missing} of {len(self._sent)} datagrams")
