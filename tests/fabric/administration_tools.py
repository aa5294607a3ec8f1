"""A program that asks subnet administration, with RMPP."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from softhca.fabric.mad_plane import Datagram
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.topology import End
from softhca.management import administration_attributes as a
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.mad import MadHeader
from softhca.wire.layout import Header

GET, SET, TABLE, DELETE = c.METHOD_GET, c.METHOD_SET, c.METHOD_GET_TABLE, c.METHOD_DELETE
ALL = (1 << 64) - 1


class Answer(NamedTuple):
    """A status and the records as bytes; ``datagrams`` that came."""

    status: int
    data: list[bytes]
    datagrams: int
    method: int


def mask(record: type[Header], *names: str) -> int:
    """The component mask of fields of a record."""
    return sum(t.component(record, name) for name in names)


class Asker:
    """A program at a port.  `reports` are datagrams that it has not asked for; `answers_reports`: it says
    that they have come."""

    def __init__(self, managed: ManagedFabric, end: tuple[int, int]) -> None:
        self.managed = managed
        self.arrived: deque[bytes] = deque()
        self.reports: list[bytes] = []
        self.answers_reports = True
        self.endpoint = managed.plane.attach(End(*end), self._deliver)
        self._next = 1

    @property
    def guid(self) -> int:
        """Its port's."""
        return self.endpoint.node.node.port_guid(self.endpoint.port.number)

    @property
    def gid(self) -> bytes:
        """Its port's."""
        return self.endpoint.port.info.gid_prefix.to_bytes(8, "big") + self.guid.to_bytes(8, "big")

    @property
    def lid(self) -> int:
        """Its port's."""
        return self.endpoint.port.info.lid

    def _deliver(self, datagram: Datagram) -> bool:
        data = datagram.data
        if data[3] == c.METHOD_REPORT:
            self.reports.append(data)
            if self.answers_reports:
                self.send(data[:3] + bytes([data[3] | c.RESPONSE]) + data[4:])
        else:
            self.arrived.append(data)
        return True

    def send(self, data: bytes) -> None:
        """A datagram to the manager."""
        info = self.endpoint.port.info
        self.managed.plane.send(
            self.endpoint, Datagram(info.sm_lid, info.lid, 1, 1, data), self.managed.now
        )  # fmt: skip

    def datagram(
        self, method: int, attribute: int, record: Header | bytes = b"", wanted: int = 0, *, key: int = 0,
        modifier: int = 0, **header: int,
    ) -> bytes:  # fmt: skip
        """A request."""
        number = self._next
        self._next += 1
        front = MadHeader(
            **{
                "management_class": c.CLASS_SUBN_ADM, "class_version": a.CLASS_VERSION, "method": method,
                "transaction_id": number, "attribute_id": attribute, "attribute_modifier": modifier, **header,
            }
        )  # fmt: skip
        second = a.AdministrationHeader(sm_key=key, component_mask=wanted)
        data = record if isinstance(record, bytes) else record.encode()
        return (front.encode() + second.encode() + data).ljust(c.MAD_BYTES, b"\0")

    def ask(
        self, method: int, attribute: int, record: Header | bytes = b"", wanted: int = 0, **more: int
    ) -> Answer | None:
        """Ask, and take the whole answer; None: there is none."""
        self.arrived.clear()
        self.send(self.datagram(method, attribute, record, wanted, **more))
        return self.take()

    def take(self) -> Answer | None:
        """The answer to what has been asked."""
        self._turn()
        receiver, count = rmpp.Receiver(), 0
        while self.arrived:
            data = self.arrived.popleft()
            count += 1
            header = MadHeader.decode(data)
            if not rmpp.is_rmpp(data):
                return Answer(header.status, [data[rmpp.DATA_AT :]], count, header.method)
            acknowledgement = receiver.receive(data)
            if acknowledgement is not None:
                self.send(acknowledgement)
                self._turn()
            if receiver.done:
                size = 8 * receiver.administration.attribute_offset
                whole = [receiver.data[at : at + size] for at in range(0, len(receiver.data), size)]
                return Answer(header.status, whole, count, header.method)
        return None

    def _turn(self) -> None:
        for _ in range(10_000):
            if not self.managed.step():
                return

    def records(
        self, kind: type[Header], record: Header | None = None, wanted: int = 0, **more: int
    ) -> list[Header]:
        """The records of a table."""
        attribute = next(number for number, each in t.RECORDS.items() if each is kind)
        answer = self.ask(TABLE, attribute, record or b"", wanted, **more)
        assert answer is not None
        assert answer.status == 0, hex(answer.status)
        assert answer.method == c.METHOD_GET_TABLE_RESPONSE
        return [kind.decode(data) for data in answer.data]

    def status(
        self, method: int, attribute: int, record: Header | bytes = b"", wanted: int = 0, **more: int
    ) -> int:
        """The status of the answer."""
        answer = self.ask(method, attribute, record, wanted, **more)
        assert answer is not None
        return answer.status
