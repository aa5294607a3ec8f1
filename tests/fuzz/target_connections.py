"""Hostile messages of the communication manager, between two managers with listeners, connections and SIDR
requests in every state: nothing raises but a refusal, what is sent is well formed, what has a message from a
stranger's address changes nothing, tables and timers stay bounded, and all ends when the owners go.

Input: one step after another: a message made from anything, or one that was sent before with bytes changed,
from the peer's or another address; a command of an owner; time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.adapter.connection_manager import entry_of
from softhca.management.cm import messages as m
from softhca.management.cm.elements import NEVER_NS, REQUEST, SIDR_REQUEST, Connection, Event
from softhca.management.cm.manager import ConnectionManager
from softhca.management.constants import MAD_BYTES
from softhca.management.mad import Address
from softhca.queues.layout import CM_ENTRY_BYTES
from softhca.wire.errors import WireError

SERVICES = (1, 2)
BACKLOG = 4
ROOM = 24
KINDS = tuple(m.ATTRIBUTES.values())
PEER = Address(qpn=1, gid=b"\x01" * 16)
STRANGER = Address(qpn=1, gid=b"\x02" * 16)
OWN = b"\x03" * 16
HEADER_BYTES = 24
ID_BYTES = 4
MOST_STEPS = 200
TIMES_NS = (0, 1_000, 1_000_000_000, 1 << 45)


class Program:
    """An owner with room for a few requests."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def deliver(self, event: Event) -> bool:
        assert len(entry_of(event)) == CM_ENTRY_BYTES  # as the adapter writes it for a host
        if event.kind in (REQUEST, SIDR_REQUEST):
            if len(self.numbers) >= ROOM:
                return False
            self.numbers.append(event.number)
        return True


class Place:
    """A manager, its program, and what both have sent."""

    def __init__(self, seed: int) -> None:
        self.sent: list[bytes] = []
        self.now = 0
        self.program = Program()
        self.manager = ConnectionManager(self.transmit, 7, seed)
        for service in SERVICES:
            self.manager.listen(self.program, service, BACKLOG)

    def transmit(self, data: bytes, address: Address) -> bool:
        assert len(data) == MAD_BYTES
        transaction_id, message = m.decode(data)
        assert m.encode(message, transaction_id) == data
        self.sent.append(data)
        return True

    def states(self) -> list[tuple[int, str]]:
        return [(each.number, each.state) for each in self.manager._tables if isinstance(each, Connection)]

    def speaks(self, number: int, source: Address) -> bool:
        """Whether the peer of a connection may speak from there: along the first path, or another one that
        both sides have loaded.
        """
        found = self.manager._tables.find(number)
        assert isinstance(found, Connection)
        return source.gid in {found.peer.gid, found.other.gid if found.other is not None else found.peer.gid}

    def number(self, choices: Choices) -> int:
        return choices.pick(self.program.numbers) if self.program.numbers else choices.byte()

    def command(self, choices: Choices) -> None:
        """Any command of the program; OSError refuses it."""
        manager, program, now = self.manager, self.program, self.now
        which = choices.below(12)
        if which == 0 and len(program.numbers) < ROOM:
            request = m.Req(
                service_id=choices.pick(SERVICES),
                local_qpn=choices.byte(),
                max_cm_retries=choices.below(16),
                remote_cm_response_timeout=choices.below(32),
                primary_ack_timeout=choices.below(32),
            )
            program.numbers.append(manager.connect(program, PEER, request, now))
        elif which == 1 and len(program.numbers) < ROOM:
            request = m.SidrReq(service_id=choices.pick(SERVICES))
            retries = choices.below(4)
            program.numbers.append(manager.resolve(program, PEER, request, choices.below(32), retries, now))
        elif which == 2:
            manager.reply(program, self.number(choices), m.Rep(local_qpn=choices.byte()), now)
        elif which == 3:
            manager.ready(program, self.number(choices), choices.run(), now)
        elif which == 4:
            ari, private = choices.run(), choices.run()
            manager.reject(program, self.number(choices), choices.byte(), ari, private, now)
        elif which == 5:
            manager.disconnect(program, self.number(choices), choices.run(), now)
        elif which == 6:
            manager.establish(program, self.number(choices), now)
        elif which == 7:
            manager.answer(program, self.number(choices), m.SidrRep(qpn=choices.byte()))
        elif which == 9:
            way = {name: choices.block(16) for name in ("alternate_local_gid", "alternate_remote_gid")}
            lap = m.Lap(alternate_local_lid=choices.number(2), private_data=choices.block(168), **way)
            manager.load_path(program, self.number(choices), lap, now)
        elif which == 10:
            manager.answer_path(program, self.number(choices), m.Apr(ap_status=choices.below(3)), now)
        elif which == 11:
            gids = choices.pick((PEER.gid, STRANGER.gid, bytes(16))), choices.pick((OWN, bytes(16)))
            manager.migrated(choices.byte(), *gids, choices.byte(), choices.byte(), 0, 0)
        elif which == 8 and program.numbers:
            number = self.number(choices)
            program.numbers.remove(number)
            manager.destroy(program, number, now)

    def message(self, choices: Choices) -> bytes:
        """A message of any kind, with IDs that are somebody's where the input says so, and bytes changed."""
        kind = choices.below(4)
        if kind == 0:
            return choices.run()
        if kind == 1 and self.sent:
            data = bytearray(choices.pick(self.sent))
            ids = data[HEADER_BYTES : HEADER_BYTES + 2 * ID_BYTES]
            data[HEADER_BYTES : HEADER_BYTES + 2 * ID_BYTES] = ids[ID_BYTES:] + ids[:ID_BYTES]
        else:
            data = bytearray(m.encode(choices.pick(KINDS)(), choices.byte()))
            data[HEADER_BYTES + ID_BYTES - 1] = choices.byte()
            data[HEADER_BYTES + 2 * ID_BYTES + 7] = choices.byte()  # a request's service
            if choices.below(2):
                at = HEADER_BYTES + ID_BYTES * choices.below(2)
                data[at : at + ID_BYTES] = self.number(choices).to_bytes(ID_BYTES, "big")
        for _ in range(choices.below(4)):
            data[choices.byte()] = choices.byte()
        return bytes(data)

    def receive(self, data: bytes, source: Address) -> None:
        """One message; whose it is not, it does not touch."""
        before, counters, sent = self.states(), dict(self.manager.counters), len(self.sent)
        known = {number for number, _ in before if self.speaks(number, source)}
        numbers = {number for number, _ in before}
        self.manager.receive(data, source, self.now)
        answers = [type(m.decode(each)[1]) for each in self.sent[sent:]]
        assert len(answers) <= 1 or answers == [m.Dreq, m.Rej], "more than the end of a stale connection"
        assert self.manager.counters["received"] == counters["received"] + 1
        try:
            kind = type(m.decode(data)[1])
        except WireError:
            assert self.manager.counters["drops_malformed"] == counters["drops_malformed"] + 1
            return
        if source is STRANGER and kind not in (m.Req, m.SidrReq):
            after = self.states()
            assert [each for each in after if each[0] not in known] == [
                each for each in before if each[0] not in known
            ]
        assert m.connection_of(data) == getattr(m.decode(data)[1], "remote_comm_id", 0)
        new = [each for each in self.states() if each[0] not in numbers]
        assert len(new) <= (kind is m.Req)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    place = Place(1)
    manager = place.manager
    for _ in range(MOST_STEPS):
        if not choices.more:
            break
        step = choices.below(8)
        if step < 4:
            place.receive(place.message(choices), STRANGER if choices.once_in(4) else PEER)
        elif step < 7:
            with contextlib.suppress(OSError):
                place.command(choices)
        else:
            place.now += choices.pick(TIMES_NS)
            manager.expire(place.now)
        assert manager._tables.connections <= 2 * MOST_STEPS
        for number in [each for each in place.program.numbers if not manager.has(each)]:
            place.program.numbers.remove(number)
        assert all(count >= 0 for count in manager.counters.values())
    manager.destroy_all(place.program, place.now)
    while manager.next_deadline() < NEVER_NS:
        place.now = max(place.now, manager.next_deadline())
        manager.expire(place.now)
    assert manager._tables.connections == 0
    assert not manager._by_remote
    assert not manager._by_end
    assert not manager._by_local
    assert not manager._resolutions._asked


def seeds() -> Iterator[bytes]:
    """Each kind of message alone, twice, and behind a request, a connection and a reply."""
    request = bytes([0, 2, 0, 9, 5, 1, 0, 0, 0])
    connect = bytes([4, 0, 0, 17, 3, 10, 10])
    reply = bytes([4, 2, 0, 5])
    for number, _ in enumerate(KINDS):
        one = bytes([0, 2, number, 9, 5, 1, 1, 1, 0, 0, 0])
        for before in (b"", one, request, connect, request + reply):
            yield before + one + bytes([7, 2]) + one
    yield connect + bytes([1, 1, 0, 0, 0]) + bytes([7, 3]) * 4
    yield request + reply + bytes([4, 5, 0, 0, 7, 3, 7, 3])
