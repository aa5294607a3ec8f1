"""The oracle of the wire: who looks at packets alone must see the standard kept.

It is told of every packet that adapters send and receive, and follows each queue pair by the standard's
rules; it knows nothing of what is inside adapters.  So it finds what programs never notice because a retry
repairs it: acknowledgements that do not come, time-outs at the wrong moment, NAKs that are missing or
repeated, wrong counts.  Reliable requests and answers have files of their own (`oracle_wire_requester`,
`oracle_wire_responder`), and so have reliable datagrams (`oracle_wire_datagrams`).
"""

from __future__ import annotations

from typing import Any

from softhca.simulation.kinds import RC, UC, UD
from softhca.simulation.oracle import Report
from softhca.simulation.oracle_wire_datagrams import RD_SERVICE, DatagramOracle
from softhca.simulation.oracle_wire_packets import (
    ANSWERS,
    BTH_BYTES,
    DATAGRAM_CODES,
    LASTS,
    MAY_BE_SOLICITED,
    NOTHING,
    REQUESTS,
    UNRELIABLE_CODES,
    WRITE_FIRST,
    WRITE_ONLY,
    WRITES,
    Checksums,
    Hold,
    Links,
    Terms,
    be,
    follows,
    is_right_native,
    mask_of,
    payload_bytes,
    wrong_length,
)
from softhca.simulation.oracle_wire_requester import Requester
from softhca.simulation.oracle_wire_responder import Responder

SHORTEST_BYTES = 16
VCRC_BYTES = 2
FOREVER_NS = (1 << 63) - 1
DETH_BYTES = 8
REQUEST, ANSWER, RESULT = "request", "answer", "result"
"""What may find its memory held."""
MIGREQ = 0x40
CLEAN = b"\xff\xff\x00"
"""The default partition's key, and neither congestion nor reserved bits."""
GROUP = b"\xff\xff\xff"
CODES = {
    RC: REQUESTS | ANSWERS,
    UC: frozenset(0x20 | code for code in UNRELIABLE_CODES),
    UD: frozenset(0x60 | code for code in DATAGRAM_CODES),
}
"""Opcodes of each service."""

Key = tuple[int, int]
"""(adapter, queue pair)"""

_ALLOWED = {service: bytes(code in codes for code in range(256)) for service, codes in CODES.items()}
_ANSWERS = mask_of(ANSWERS)
_WRITES = mask_of(WRITES)
_WITH_RETH = mask_of({WRITE_FIRST, WRITE_ONLY, WRITE_ONLY + 1})
_WRITE_ENDS = mask_of(WRITES & LASTS | {WRITE_ONLY, WRITE_ONLY + 1})


class Unreliable:
    """What a queue pair of UC or UD sends: PSNs one after the other, messages whole (9.8.2, 9.8.3)."""

    def __init__(self, terms: Terms, report: Report, service: int) -> None:
        self.terms = terms
        self.report = report
        self._service = service
        self._psn = terms.psn
        self._before = NOTHING
        self._mtu_bytes = terms.mtu_bytes
        self._left_bytes = 0

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.report.fail(rule, f"{self.terms.name}: {text}")

    def sent(self, code: int, data: bytes) -> None:
        """A packet goes out."""
        psn = be(data, 9, 12)
        if psn != self._psn:
            self.fail("PSNs without gaps", f"PSN {psn} instead of {self._psn}")
        self._psn = (psn + 1) & 0xFFFFFF
        if not follows(code, self._before):
            self.fail("opcodes in sequence", f"{code:#04x} after {self._before:#04x}")
        self._before = code
        packet = data
        if self._service == UD:
            packet = data[:BTH_BYTES] + data[BTH_BYTES + DETH_BYTES :]
        wrong = wrong_length(packet, code, self._mtu_bytes)
        if _WRITES >> code & 1:
            if _WITH_RETH >> code & 1:
                self._left_bytes = be(data, 24, 28)
            self._left_bytes -= payload_bytes(data, code)
            if self._left_bytes < 0 or (_WRITE_ENDS >> code & 1 == 1) == (self._left_bytes > 0):
                wrong = f"{self._left_bytes} bytes of the message are left"
        if wrong:
            self.fail("packets as long as they should be", f"PSN {psn}: {wrong}")


def _number_of(key: Key) -> int:
    """One number for adapter and queue pair."""
    return key[0] << 24 | key[1]


class End:
    """One queue pair: its service, its peer, and who follows it."""

    def __init__(self, key: Key, service: int, peer: Key, name: str, qkey: int) -> None:
        self.service = service
        self.adapter = key[0]
        self.allowed = _ALLOWED[service]
        self.peer = peer
        self.other: End | None = None
        self.name = name
        self.qkey = qkey
        self.requester: Requester | None = None
        self.responder: Responder | None = None
        self.unreliable: Unreliable | None = None


class WireOracle:
    """All queue pairs of a world.  ``losses``: when packets for which queue pair vanished or were damaged.

    Queue pairs that `connect` did not tell of are not looked at.
    """

    def __init__(self, report: Report, losses: dict[Key, list[int]]) -> None:
        self.report = report
        self._links = Links(losses)
        self._ends: dict[int, End] = {}
        self._holds: dict[int, Hold] = {}
        self._checksums = Checksums()
        self._last_destination = -1
        self._last_data = b""
        self._datagrams: DatagramOracle | None = None

    def connect_datagrams(self, one: Key, other: Key, psn: int, mtu_bytes: int) -> None:
        """EE context ``one`` begins to send reliable datagrams to ``other``, at ``psn``."""
        if self._datagrams is None:
            self._datagrams = DatagramOracle(self.report)
        self._datagrams.connect(one, other, psn, mtu_bytes)

    def connect(
        self, one: Key, other: Key, service: int, terms: Terms, qkey: int = 0, prompt: bool = True
    ) -> None:
        """Queue pair ``one`` talks to ``other``, both as (adapter, queue pair); each tells of itself.

        Of one that is not ``prompt``, so that it has not seen all that has come, only the packets are judged
        that its peer may be sent.
        """
        end = self._ends[_number_of(one)] = End(one, service, other, terms.name, qkey)
        for known in self._ends.values():
            known.other = None
        if not prompt:
            return
        if service != RC:
            end.unreliable = Unreliable(terms, self.report, service)
            return
        holds = tuple(self._holds.setdefault(adapter, Hold()) for adapter in (one[0], other[0]))
        end.requester = Requester(terms, self.report, self._links, holds)
        end.responder = Responder(terms, self.report)
        requesters = [
            found.requester
            for found in self._ends.values()
            if found.requester is not None and found.adapter == one[0] and found.peer[0] == other[0]
        ]
        for requester in requesters:
            requester.sharers = len(requesters)

    def sharers(self, one: Key) -> int:
        """How many queue pairs talk to the adapter that ``one`` talks to, and share a window with it."""
        end = self._ends.get(_number_of(one))
        return end.requester.sharers if end is not None and end.requester is not None else 1

    def posted(self, one: Key, count: int) -> None:
        """A program posts so many receives to its queue pair's own queue."""
        end = self._ends.get(_number_of(one))
        if end is not None and end.responder is not None:
            end.responder.posted = max(end.responder.posted, 0) + count

    # memory that is held

    def hold(self, now: int, adapter: int) -> None:
        """From now on registered memory of an adapter may not be touched, or not all of it."""
        hold = self._holds.setdefault(adapter, Hold())
        hold.held, hold.last_ns = True, now

    def lifted(self, now: int, adapter: int) -> None:
        """It may be touched again."""
        hold = self._holds.setdefault(adapter, Hold())
        hold.held, hold.last_ns = False, now
        for end in self._ends.values():
            if end.adapter == adapter and end.responder is not None:
                end.responder.lifted(now)

    def held(self, now: int, one: Key, psn: int, what: str, truly: bool) -> None:
        """A queue pair says that it cannot touch memory for a packet; ``truly``: some of it is held."""
        hold = self._holds.setdefault(one[0], Hold())
        hold.last_ns = now
        end = self._ends.get(_number_of(one))
        if not truly:
            self.report.fail("only what is held waits", f"adapter {one[0]}: {what} of PSN {psn}")
        if end is None or end.requester is None or end.responder is None:
            return
        if what == RESULT:
            end.requester.unplaced(now, psn)
        elif what == REQUEST:
            end.responder.unready(now, psn)
        elif what == ANSWER:
            end.responder.held(psn)

    def failed(self, one: Key, status: int) -> None:
        """A program was told that a request, or a receive, of its queue pair ended with an error."""
        end = self._ends.get(_number_of(one))
        if end is None or end.requester is None or end.responder is None:
            return
        end.requester.failed(status)
        end.responder.strict = False
        peer = self._ends.get(_number_of(end.peer))
        if peer is not None and peer.requester is not None:
            peer.requester.strict = False

    def paced(self, one: Key, until_ns: int) -> None:
        """A queue pair says that the answer to a READ keeps its pace, and goes on at that time."""
        end = self._ends.get(_number_of(one))
        if end is not None and end.responder is not None:
            end.responder.paced(until_ns)

    # packets

    def disorder(self) -> None:
        """A packet will arrive late, after others or twice."""
        self._links.disorderly = True

    def sent(self, now: int, source: int, destination: int, data: bytes, route: Any, whole: bytes) -> None:
        """Adapter ``source`` sent a packet to adapter ``destination``: between the GIDs of ``route``, or
        natively as it is ``whole``, LRH … VCRC.
        """
        if len(data) < SHORTEST_BYTES:
            self.report.fail("packets as long as they should be", f"from adapter {source}: {data.hex()}")
            return
        if not (
            self._checksums.is_right(data, route)
            if whole is data
            else is_right_native(data, whole[: len(whole) - len(data) - VCRC_BYTES])
        ):
            self.report.fail("every packet has its ICRC", f"from adapter {source}: {data[:12].hex()} …")
        if self._datagrams is not None and data[0] & 0xE0 == RD_SERVICE:
            self._datagrams.sent(source, destination, data)
            return
        there = self._end_of(destination, data)
        if there is None:
            self._unknown(source, data)
            return
        here = there.other
        if there.service == UD:
            if data == self._last_data and destination != self._last_destination:
                return  # one datagram to a group
            self._last_destination, self._last_data = destination, data
            here = self._ends.get(source << 24 | be(data, 17, 20))
        elif here is None:
            here = there.other = self._ends.get(_number_of(there.peer))
        if here is None or here.adapter != source:
            self._fail(there, "packets go to the peer", f"{data[:12].hex()} … from adapter {source}")
            return
        if not here.allowed[data[0]]:
            self._fail(here, "opcodes of the service", f"{data[0]:#04x}")
            return
        code = data[0] & 0x1F
        if (
            data[1] & 0xCF != MIGREQ or data[2] & data[3] != 0xFF or data[4] or data[8] & 0x7F
            or there.service == UD
        ):  # fmt: skip
            self._check_fields(here, there, code, data)
        if here.unreliable is not None:
            here.unreliable.sent(code, data)
        elif here.requester is not None and here.responder is not None:
            if _ANSWERS >> code & 1:
                here.responder.sent(now, code, data)
                if here.responder.over:
                    here.requester.over = True
            else:
                here.requester.sent(now, code, data)

    def _end_of(self, adapter: int, data: bytes) -> End | None:
        """The queue pair of an adapter to which a packet goes."""
        return self._ends.get(adapter << 24 | data[5] << 16 | data[6] << 8 | data[7])

    def _unknown(self, source: int, data: bytes) -> None:
        """A packet goes to a queue pair that nobody told of."""
        if self._ends and data[5:8] != GROUP:
            text = f"{data[:12].hex()} … from adapter {source} to nobody"
            self.report.fail("packets go to the peer", text)

    def received(self, now: int, destination: int, data: bytes) -> None:
        """A packet that an adapter sent arrives as it was, or with another shape that passes for its own."""
        if len(data) < SHORTEST_BYTES:
            return  # that it was sent so has been said
        if self._datagrams is not None and data[0] & 0xE0 == RD_SERVICE:
            self._datagrams.received(destination, data)
            return
        end = self._end_of(destination, data)
        if end is None or end.requester is None or end.responder is None:
            return
        code = data[0] & 0x1F
        if _ANSWERS >> code & 1:
            end.requester.received(now, code, data)
            if end.requester.over:
                end.responder.ended(now)
        else:
            end.responder.received(now, code, data)

    def damaged(self, now: int, destination: int, data: bytes, route: Any) -> None:
        """A packet arrives that something happened to; it is as good as lost, unless its ICRC is right."""
        if len(data) >= SHORTEST_BYTES and self._checksums.is_right(data, route):
            self.received(now, destination, data)

    def malformed(self, destination: int, data: bytes) -> None:
        """What arrives next has been given a shape that cannot be."""
        end = self._end_of(destination, data) if len(data) >= SHORTEST_BYTES else None
        if end is not None and end.responder is not None and data[0] & 0x1F not in ANSWERS:
            end.responder.malformed(data[0] & 0x1F, data)

    def forged(self, destination: int, data: bytes) -> None:
        """A packet that nobody sent arrives.  Where only its PSN is wrong its receiver may miss what seems to
        be before it.
        """
        end = self._end_of(destination, data) if len(data) >= SHORTEST_BYTES else None
        if end is not None and end.responder is not None and data[0] & 0x1F not in ANSWERS:
            end.responder.forged(data)

    def _check_fields(self, here: End, there: End, code: int, data: bytes) -> None:
        """Fields of the BTH and DETH (9.2, 9.3): MigReq is 1 without path migration, TVer 0, reserved bits
        0."""
        if data[1] & 0x4F != MIGREQ or data[2:5] != CLEAN or data[8] & 0x7F:
            self._fail(here, "fields of the BTH", data[:12].hex())
        if data[1] & 0x80 and code not in MAY_BE_SOLICITED:
            self._fail(here, "only ends of messages are solicited", f"{data[0]:#04x}")
        if there.service == UD and (be(data, 12, 16) != there.qkey or data[16]):
            self._fail(here, "datagrams with their Q_Key", data[12:20].hex())

    def _fail(self, end: End, rule: str, text: str) -> None:
        self.report.fail(rule, f"{end.name}: {text}")

    # the end

    def finish(self) -> None:
        """The world is at rest: nobody still owes an answer."""
        for end in self._ends.values():
            if end.responder is not None:
                end.responder.lifted(0)
                end.responder.advance(FOREVER_NS)
