"""Headers between BTH and those of the operation: XRCETH, RDETH and DETH in their places, and counted in
every size."""


import pytest

from softhca.queues import wqe
from softhca.testing.transport_pair import Pair
from softhca.transport.request import Request
from softhca.transport.segmentation import UNLIMITED, PacketWriter
from softhca.wire import opcodes
from softhca.wire.burst import Burst
from softhca.wire.packet import decode_transport
from softhca.wire.route import ROCE_V4, Route

PMTU = 256
EE, QKEY, SOURCE, SRQ = 0x123456, 0x11223344, 0xABCDEF, 0x654321
ROUTE = Route(ROCE_V4, bytes(10) + b"\xff\xff\xc0\x00\x02\x01", bytes(10) + b"\xff\xff\xc0\x00\x02\x02")
SAID = {
    opcodes.RC: {},
    opcodes.RD: {"Rdeth": {"ee_context": EE}, "Deth": {"qkey": QKEY, "source_qp": SOURCE}},
    opcodes.XRC: {"Xrceth": {"xrc_srq": SRQ}},
}
RESPONSES_SAY = {opcodes.RC: (), opcodes.RD: ("Rdeth",), opcodes.XRC: ()}


@pytest.fixture(params=SAID, ids=opcodes.SERVICE_NAMES.get)
def writer(request):
    """A writer of packets of a service that only this test knows, on a queue pair made for another."""
    code = request.param
    pair = Pair(pmtu=PMTU)
    qp = pair.left.qp
    qp.service = code
    writer = PacketWriter(qp)
    writer.ee_context, writer.qkey, writer.source_qp, writer.xrc_srq = EE, QKEY, SOURCE, SRQ
    writer.begin(Burst(), ROUTE, UNLIMITED)
    yield writer
    qp.service = opcodes.RC
    pair.close()


def request_of(qp, opcode, payload, imm=0):
    entry = bytearray(wqe.send_bytes(4, 1024))
    n = wqe.encode_send(entry, opcode, 0, imm, 1, 0x1000, 0x77, 5, 6, 0, 0, 0, [], payload)
    request = Request(4, 1024)
    request.work.load(entry, n)
    request.prepare(qp.environment.regions, qp.pd, 0xFFF)
    request.segment(qp.path_mtu_bytes, 100)
    return request


def packets_of(burst):
    data = bytes(burst.data[: burst.length])
    return [decode_transport(data[o : o + burst.stride]) for o in range(0, burst.length, burst.stride)]


def said_by(packet):
    return {type(header).__name__: header for header in packet.extensions}


def check_front(packet, service, names):
    assert packet.bth.opcode >> 5 == service
    headers = said_by(packet)
    assert [name for name in headers if name in ("Rdeth", "Deth", "Xrceth")] == list(names)
    for name in names:
        for field, value in SAID[service][name].items():
            assert getattr(headers[name], field) == value


@pytest.mark.parametrize(
    ("opcode", "last"),
    [
        (wqe.SEND, ()),
        (wqe.SEND_WITH_IMM, ("ImmDt",)),
        (wqe.RDMA_WRITE, ()),
        (wqe.RDMA_WRITE_WITH_IMM, ("ImmDt",)),
    ],
)
def test_every_packet_of_a_message_has_them_in_front(writer, opcode, last):
    service = writer.connection.service
    payload = bytes(range(256)) * 2 + b"tail"
    request = request_of(writer.connection, opcode, payload, 0x01020304)
    found, index = [], 0
    while index < request.packets:  # a longer first packet ends a burst
        burst = Burst()
        writer.begin(burst, ROUTE, UNLIMITED)
        written = writer.message(request, index, 99, False)
        assert written > 0
        found += packets_of(burst)
        index += written
    assert b"".join(packet.payload for packet in found) == payload
    for packet in found:
        check_front(packet, service, SAID[service])
    behind = [name for name in said_by(found[-1]) if name not in SAID[service]]
    assert tuple(behind) == last


@pytest.mark.parametrize("opcode", [wqe.ATOMIC_CMP_AND_SWP, wqe.ATOMIC_FETCH_AND_ADD])
def test_an_atomic_request_has_them(writer, opcode):
    service = writer.connection.service
    request = request_of(writer.connection, wqe.SEND, b"")
    request.work.opcode = opcode
    assert writer.atomic_request(request)
    (packet,) = packets_of(writer.burst)
    check_front(packet, service, SAID[service])
    assert said_by(packet)["AtomicEth"].rkey == 0x77


def test_a_read_request_has_them(writer):
    service = writer.connection.service
    request = request_of(writer.connection, wqe.SEND, b"x" * 8)
    request.work.opcode = wqe.RDMA_READ
    assert writer.read_request(request, 0, 1)
    (packet,) = packets_of(writer.burst)
    check_front(packet, service, SAID[service])
    assert said_by(packet)["Reth"].dma_length_bytes == 8


@pytest.mark.parametrize("atomic", [False, True])
def test_answers_have_what_is_for_answers(writer, atomic):
    service = writer.connection.service
    assert writer.atomic_response(7, 0, 3, 99) if atomic else writer.acknowledge(7, 0, 3)
    (packet,) = packets_of(writer.burst)
    check_front(packet, service, RESPONSES_SAY[service])
    assert said_by(packet)["Aeth"].msn == 3


def test_a_packet_that_would_be_too_long_by_them_alone_does_not_fit(writer):
    service = writer.connection.service
    front = sum(
        dict((name, size) for name, _, size in opcodes.EXTENSION_HEADERS)[name.lower()]
        for name in SAID[service]
    )
    request = request_of(writer.connection, wqe.SEND, b"12345678")
    for spare, written in ((-1, 0), (0, 1)):
        burst = Burst()
        writer.begin(burst, ROUTE, 12 + front + 8 + 4 + spare)
        assert writer.message(request, 0, 1, False) == written
        assert burst.length == (12 + front + 12 if written else 0)


@pytest.mark.parametrize("overhead", [0, 100, 768])
def test_the_last_packet_of_a_burst_asks_for_an_answer_whatever_bounds_the_burst(overhead):
    """Else who has no room for more is not answered before its time-out."""
    pair = Pair(pmtu=PMTU)
    request = request_of(pair.left.qp, wqe.SEND, bytes(4 * PMTU))
    size = 12 + PMTU + 4
    for budget in range(size + overhead, 4 * (size + overhead) + 1):
        burst, writer = Burst(), PacketWriter(pair.left.qp)
        writer.begin(burst, ROUTE, budget, overhead)
        written = writer.message(request, 0, 4, True)
        assert written == budget // (size + overhead)
        asks = [packet.bth.ack_request for packet in packets_of(burst)]
        assert asks == [0] * (written - 1) + [1]
    pair.close()
