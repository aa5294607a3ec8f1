"""Packets between two queue pairs, as the oracle of the wire is shown them."""

from softhca.simulation.kinds import RC, UC, UD
from softhca.simulation.oracle import Report
from softhca.simulation.oracle_wire import WireOracle
from softhca.simulation.oracle_wire_packets import (
    Terms,
    icrc_of,
)
from softhca.wire.route import ROCE_V4, V4_MAPPED_PREFIX, Route

LEFT, RIGHT = V4_MAPPED_PREFIX + bytes((192, 0, 2, 1)), V4_MAPPED_PREFIX + bytes((192, 0, 2, 2))
THERE, BACK = Route(ROCE_V4, LEFT, RIGHT, 0xC000), Route(ROCE_V4, RIGHT, LEFT, 0xC001)
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_FIRST, WRITE_LAST, WRITE_ONLY = 0, 1, 2, 4, 6, 8, 10
READ, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK = 12, 13, 14, 15, 16, 17, 18
FETCH_ADD = 0x14
RNR, SEQUENCE, ACCESS, NO_LIMIT = 0x21, 0x60, 0x62, 31
FIRST_PSN = 0xFFFFFE
QKEY = 0x11111111
ONE, TWO = (1, 10), (2, 20)


def packet(route, opcode, qp, psn, rest=b"", payload=b"", ask=False, **wrong):
    pad = -len(payload) % 4
    flags = wrong.get("flags", 0x40) | pad << 4
    pkey, reserved = wrong.get("pkey", b"\xff\xff"), wrong.get("reserved", 0)
    bth = bytes([opcode, flags, *pkey, reserved]) + qp.to_bytes(3, "big") + bytes([0x80 * ask])
    data = bth + (psn & 0xFFFFFF).to_bytes(3, "big") + rest + payload + bytes(pad)
    return data + icrc_of(route.source, route.destination, route.source_port, data).to_bytes(4, "little")


def reth(length, va=0x1000, key=7):
    return va.to_bytes(8, "big") + key.to_bytes(4, "big") + length.to_bytes(4, "big")


class Wire:
    """Queue pair 10 of adapter 1 requests, queue pair 20 of adapter 2 answers; PSNs from 0xFFFFFE on."""

    def __init__(self, service=RC, posted=-1, **changes):
        values = {"name": "qp", "psn": FIRST_PSN, "peer_psn": FIRST_PSN, "mtu_bytes": 1024, "reads": 2}
        self.terms = terms = Terms(**(values | {"retries": 3} | changes))
        self.report = Report()
        self.losses = {}
        self.oracle = WireOracle(self.report, self.losses)
        self.oracle.connect(ONE, TWO, service, terms, QKEY)
        self.oracle.connect(TWO, ONE, service, terms, QKEY)
        self.service = service
        if posted >= 0:
            self.oracle.posted(TWO, posted)
        self.now = 1_000

    def share(self):
        """Another two queue pairs of the same adapters talk to each other."""
        self.oracle.connect((1, 11), (2, 21), RC, self.terms)

    def request(self, opcode, number, rest=b"", payload=b"", arrives=True, ask=False, **wrong):
        code = opcode | {RC: 0, UC: 0x20, UD: 0x60}[self.service]
        data = packet(THERE, code, 20, FIRST_PSN + number, rest, payload, ask, **wrong)
        self.oracle.sent(self.now, 1, 2, data, THERE, data)
        if arrives:
            self.oracle.received(self.now, 2, data)
        else:
            self.losses.setdefault(TWO, []).append(self.now)

    def send(self, number, arrives=True, ask=False, payload=b"data"):
        self.request(SEND_ONLY, number, payload=payload, arrives=arrives, ask=ask)

    def read(self, number, length=4, arrives=True, va=0x1000):
        self.request(READ, number, reth(length, va), arrives=arrives, ask=True)

    def answer(self, number, syndrome=NO_LIMIT, msn=0, opcode=ACK, payload=b"", arrives=True):
        rest = b"" if opcode == READ_MIDDLE else bytes([syndrome]) + msn.to_bytes(3, "big")
        data = packet(BACK, opcode, 10, FIRST_PSN + number, rest, payload)
        self.oracle.sent(self.now, 2, 1, data, BACK, data)
        if arrives:
            self.oracle.received(self.now, 1, data)
        else:
            self.losses.setdefault(ONE, []).append(self.now)

    @property
    def rules(self):
        self.oracle.finish()
        return [found.rule for found in self.report.violations]
