"""Messages between the adapter in gates and the software adapter, over a native link: both sides' memory,
completions and packets."""

import random
import shutil
import subprocess

import pytest

pytest.importorskip("amaranth")

from cosimulation import PD, QP, CoSimulation

from machine_speed import limit_s
from softhca.cli.main import main
from softhca.hardware.message_host import (
    READ_MESSAGE,
    SEND_IMMEDIATE,
    SEND_MESSAGE,
    WRITE_IMMEDIATE,
    WRITE_MESSAGE,
    Done,
)
from softhca.testing.ends import READ, SEND, SEND_IMM, WRITE, WRITE_IMM, post
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.packet import decode
from softhca.wire.pcap import PcapWriter

LINKTYPE_USER0 = 147
NATIVE_AS_USER0 = 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
pytestmark = pytest.mark.timeout(limit_s(600))
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
VA, BYTES = 0x7000_0000_0F23, 6000
"""A region that begins near the end of a page."""
SUCCESS, LOCAL_LENGTH, PROTECTION, FLUSHED, INVALID, ACCESS = 0, 1, 4, 5, 9, 10


def data_of(length, seed=1):
    return random.Random(seed).randbytes(length)


def headers(data):
    """The BTH of a packet whose headers and CRCs are as they must be."""
    return decode(data, LINKTYPE_INFINIBAND).transport.bth


def opcodes(both, who):
    """The names of one side's packets, in their order."""
    return [headers(data).opcode for sent, data in both.packets if sent == who]


class Talk:
    """What the gates ask for, and what they are asked for, in one simulation."""

    def __init__(self):
        self.both = both = CoSimulation()
        self.memory = data_of(BYTES)
        self.seen = {}
        self.clocks = {}
        both.run(self.script)

    async def script(self, context):
        both = self.both
        self.region = both.host.region(VA, BYTES, PD, ALL)
        both.host.write_bytes(self.region, 0, self.memory)
        for name in ("send", "write", "read", "take_send", "take_write", "take_read"):
            begin, first = both.bench.clock, len(both.packets)
            await getattr(self, name)(context)
            self.clocks[name] = both.bench.clock - begin
            self.seen[name, "packets"] = both.packets[first:]

    async def send(self, context):
        both, end = self.both, self.both.end
        both.peers[QP].post_recv(5, [end.sge(1, 300)])
        await both.host.post_send(context, QP, SEND_MESSAGE, (self.region.piece(10, 101),), work=77)
        self.seen["send"] = await both.completed(context, 1, 1), bytes(end.memory[1:102])

    async def write(self, context):
        """Four pieces, one of them empty, one across a page: three packets."""
        both, end = self.both, self.both.end
        pieces = [self.region.piece(*place) for place in ((200, 33), (1, 3), (9, 0), (4000, 480))]
        await both.host.post_send(
            context, QP, WRITE_MESSAGE, tuple(pieces), work=78, va=end.va + 777, key=end.key.rkey
        )
        self.seen["write"] = await both.completed(context), bytes(end.memory[776 : 777 + 517])

    async def read(self, context):
        both, end = self.both, self.both.end
        end.memory[2000:2300] = data_of(300, 2)
        pieces = self.region.piece(1000, 41), self.region.piece(5000, 259)
        await both.host.post_send(
            context, QP, READ_MESSAGE, pieces, work=79, va=end.va + 2000, key=end.key.rkey
        )
        found = await both.completed(context)
        taken = both.host.read_bytes(self.region, 1000, 42) + both.host.read_bytes(self.region, 5000, 260)
        self.seen["read"] = found, taken

    async def take_send(self, context):
        both, end = self.both, self.both.end
        end.memory[0:300] = data_of(300, 3)
        pieces = self.region.piece(2001, 50), self.region.piece(2200, 400)
        await both.host.post_receive(context, QP, pieces, work=80)
        post(both.peers[QP], SEND, [end.sge(1, 299)], wr_id=6)
        found = await both.completed(context, 1, 1)
        taken = both.host.read_bytes(self.region, 2001, 51) + both.host.read_bytes(self.region, 2200, 250)
        self.seen["take_send"] = found, taken

    async def take_write(self, context):
        both, end = self.both, self.both.end
        end.memory[0:300] = data_of(300, 4)
        post(both.peers[QP], WRITE, [end.sge(2, 298)], wr_id=7, va=VA + 3001, rkey=self.region.key)
        found = await both.completed(context, 0, 1)
        self.seen["take_write"] = found, both.host.read_bytes(self.region, 3000, 300)

    async def take_read(self, context):
        """And a write behind it, whose acknowledgement must not go before the read's packets."""
        both, end = self.both, self.both.end
        key = self.region.key
        post(both.peers[QP], READ, [end.sge(5000, 300)], wr_id=8, va=VA + 200, rkey=key, ring=False)
        post(both.peers[QP], WRITE, [end.sge(0, 4)], wr_id=9, va=VA + 5600, rkey=key)
        self.seen["take_read"] = await both.completed(context, 0, 2), bytes(end.memory[5000:5301])


@pytest.fixture(scope="module")
def talk():
    return Talk()


def test_a_send_of_the_gates(talk):
    (ours, theirs), taken = talk.seen["send"]
    assert ours == [Done(QP, 77, SUCCESS, 0)]
    assert theirs == [(5, SUCCESS)]
    assert taken == talk.memory[10:111]


def test_a_write_of_many_packets_gathered_from_four_pieces(talk):
    (ours, _), taken = talk.seen["write"]
    assert ours == [Done(QP, 78, SUCCESS, 0)]
    assert taken == b"\0" + talk.memory[200:233] + talk.memory[1:4] + talk.memory[4000:4480] + b"\0"


def test_a_read_of_the_gates_is_scattered_and_nothing_beside_it_is_written(talk):
    (ours, _), taken = talk.seen["read"]
    wanted = data_of(300, 2)
    assert ours == [Done(QP, 79, SUCCESS, 0)]
    assert taken == wanted[:41] + talk.memory[1041:1042] + wanted[41:] + talk.memory[5259:5260]


def test_a_send_to_the_gates_is_scattered(talk):
    (ours, theirs), taken = talk.seen["take_send"]
    wanted = data_of(300, 3)[1:]
    assert ours == [Done(QP, 80, SUCCESS, 299)]
    assert theirs == [(6, SUCCESS)]
    assert taken == wanted[:50] + talk.memory[2051:2052] + wanted[50:] + talk.memory[2449:2450]


def test_a_write_to_the_gates(talk):
    (ours, theirs), taken = talk.seen["take_write"]
    assert (ours, theirs) == ([], [(7, SUCCESS)])
    assert taken == talk.memory[3000:3001] + data_of(300, 4)[2:] + talk.memory[3299:3300]


def test_a_read_from_the_gates(talk):
    (_, theirs), taken = talk.seen["take_read"]
    assert theirs == [(8, SUCCESS), (9, SUCCESS)]
    # the gates' own SEND and WRITE took their bytes from here
    assert taken == talk.memory[200:500] + b"\0"


def test_the_packets_of_both_sides_are_those_of_the_standard(talk):
    assert opcodes(talk.both, "gates") == [
        4, 6, 7, 8, 12,  # SEND only; WRITE first, middle, last; READ request
        17, 17, 13, 15, 17,  # acknowledgements; READ response first, last; the last WRITE's
    ]  # fmt: skip
    assert opcodes(talk.both, "software") == [17, 17, 13, 15, 0, 2, 6, 8, 12, 10]
    psns = [
        decode(d, LINKTYPE_INFINIBAND).transport.bth.psn for who, d in talk.both.packets if who == "gates"
    ]
    assert psns == [100, 101, 102, 103, 104, 0xFFFFFF, 1, 2, 3, 4]


def test_tshark_finds_nothing_wrong_with_them(talk, tmp_path):
    """It knows no LINKTYPE_INFINIBAND: packets are shown to it under a user's link type instead."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    capture = tmp_path / "both.pcap"
    with capture.open("wb") as stream:
        writer = PcapWriter(stream, LINKTYPE_USER0)
        for number, (_, data) in enumerate(talk.both.packets):
            writer.write(number, data)
    fields = ["infiniband.bth.opcode", "infiniband.bth.psn", "_ws.expert.message", "_ws.malformed"]
    command = ["tshark", "-r", str(capture), "-o", NATIVE_AS_USER0, "-T", "fields", "-E", "separator=/t"]
    command += ["--disable-protocol", "rpcordma"]  # guesses at what the payload might be
    command += [word for name in fields for word in ("-e", name)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit_s(60)).stdout
    rows = [(*line.split("\t"), "", "")[:4] for line in printed.splitlines()]
    sent = [headers(data) for _, data in talk.both.packets]
    assert [(int(row[0]), int(row[1])) for row in rows] == [(bth.opcode, bth.psn) for bth in sent]
    assert not [row for row in rows if "".join(row[2:])]


def test_capture_decode_reads_them(talk, tmp_path, capsys):
    capture = tmp_path / "both.pcap"
    with capture.open("wb") as stream:
        writer = PcapWriter(stream, LINKTYPE_INFINIBAND)
        for number, (_, data) in enumerate(talk.both.packets):
            writer.write(number, data)
    assert main(["capture", "decode", str(capture)]) == 0
    printed = capsys.readouterr().out
    for name in ("RC_SEND_ONLY", "RC_RDMA_WRITE_FIRST", "RC_RDMA_READ_RESPONSE_LAST", "RC_ACKNOWLEDGE"):
        assert name in printed


class Errors:
    """What is refused, each on a queue pair of its own."""

    RANGE, KEY, OURS, LOCAL, LATE, GAP, LONG, RIGHT, LOST, PROMPT = range(2, 12)

    def __init__(self):
        qps = tuple(range(2, 12))
        self.both = both = CoSimulation(qps, vis=16, min_rnr_timer=1)
        self.memory = data_of(BYTES, 5)
        self.seen = {}
        self.dropped = []
        both.run(self.script)

    async def script(self, context):
        both, host, end = self.both, self.both.host, self.both.end
        region = host.region(VA, BYTES, PD, ALL)
        self.region = region
        closed = host.region(0x5000, 64, PD, LOCAL_WRITE)
        other = host.region(0x9000, 64, PD + 1, ALL)
        host.write_bytes(region, 0, self.memory)

        async def theirs(name, qp, opcode, va, key, length=40):
            post(both.peers[qp], opcode, [end.sge(0, length)], wr_id=qp, va=va, rkey=key)
            self.seen[name] = await both.completed(context, 0, 1)

        await theirs("range", self.RANGE, WRITE, VA + BYTES - 39, region.key)
        await theirs("key", self.KEY, READ, 0x9000, other.key)
        await theirs("right", self.RIGHT, WRITE, 0x5000, closed.key)
        piece = (region.piece(0, 10),)
        await host.post_send(
            context, self.OURS, WRITE_MESSAGE, piece, work=1, va=end.va, key=end.key.rkey ^ 1
        )
        await host.post_send(context, self.OURS, SEND_MESSAGE, piece, work=2)
        self.seen["ours"] = await both.completed(context, 2)
        beyond = (region.piece(BYTES - 5, 10),)
        await host.post_send(context, self.LOCAL, SEND_MESSAGE, beyond, work=3)
        self.seen["local"] = await both.completed(context)

        post(both.peers[self.LATE], SEND, [end.sge(0, 8)], wr_id=4)
        await both.until(context, lambda: (17, self.LATE) in self.told())
        await host.post_receive(context, self.LATE, (region.piece(3000, 8),), work=4)
        self.seen["late"] = await both.completed(context, 1, 1)

        both.change = self.lose_one
        await host.post_send(context, self.GAP, WRITE_MESSAGE, (region.piece(0, 300),), work=5,
                             va=end.va + 9000, key=end.key.rkey)  # fmt: skip
        self.seen["gap"] = await both.completed(context)
        both.change = lambda who, data: data

        self.lost = []
        both.change = self.lose_answers
        await both.bench.set_context(context, self.LOST, SQ_TIMEOUT=1)
        await host.post_send(context, self.LOST, WRITE_MESSAGE, (region.piece(40, 40),), work=7,
                             va=end.va + 9400, key=end.key.rkey)  # fmt: skip
        end.memory[700:740] = self.memory[80:120]
        self.seen["lost"] = [await both.completed(context)]
        await host.post_send(context, self.LOST, READ_MESSAGE, (region.piece(3100, 40),), work=8,
                             va=end.va + 700, key=end.key.rkey)  # fmt: skip
        self.seen["lost"].append(await both.completed(context))
        both.change = lambda who, data: data
        await self.promptly(context)

        await host.post_receive(context, self.LONG, (region.piece(4000, 20),), work=6)
        await theirs("long", self.LONG, SEND, 0, 0)
        self.seen["after"] = both.host.read_bytes(region, 0, BYTES), both.host.read_bytes(closed, 0, 64)

    async def promptly(self, context):
        """Immediate data both ways."""
        both, host, end, qp = self.both, self.both.host, self.both.end, self.PROMPT
        region, seen = self.region, []
        both.peers[qp].post_recv(1, [end.sge(9600, 40)])
        both.peers[qp].post_recv(2, [end.sge(9600, 40)])
        await host.post_send(
            context, qp, SEND_IMMEDIATE, (region.piece(0, 9),), work=1, immediate=0x01020304
        )
        await host.post_send(context, qp, WRITE_IMMEDIATE, (region.piece(0, 300),), work=2, immediate=5,
                             va=end.va + 9700, key=end.key.rkey)  # fmt: skip
        found = []
        await both.until(context, lambda: seen.extend(host.poll()) or found.extend(end.cq.poll(4))
                         or len(seen) + len(found) == 4)  # fmt: skip
        for work in (11, 12):
            await host.post_receive(context, qp, (region.piece(3200, 40),), work=work)
        post(both.peers[qp], SEND_IMM, [end.sge(0, 8)], wr_id=3, imm=0x0A0B0C0D)
        post(both.peers[qp], WRITE_IMM, [end.sge(0, 300)], wr_id=4, va=VA + 3300, rkey=region.key, imm=6)
        gates, peers = await both.completed(context, 2, 2)
        self.seen["prompt"] = seen, [(done.wr_id, done.imm_data) for done in found], gates, peers

    def lose_answers(self, who, data):
        """The software's first acknowledgement, and its first answer to a READ."""
        opcode = headers(data).opcode
        if who == "software" and opcode in (16, 17) and opcode not in self.lost:
            self.lost.append(opcode)
            return None
        return data

    def told(self):
        """(opcode, queue pair of the gates) of what the gates have sent."""
        numbers = {peer.number: qp for qp, peer in self.both.peers.items()}
        packets = [headers(data) for who, data in self.both.packets if who == "gates"]
        return [(bth.opcode, numbers[bth.dest_qp]) for bth in packets]

    def lose_one(self, who, data):
        if who == "gates" and not self.dropped and headers(data).opcode == 6:
            self.dropped.append(data)
            return None
        return data


@pytest.fixture(scope="module")
def errors():
    return Errors()


@pytest.mark.parametrize("name", ["range", "key", "right"])
def test_a_peer_without_key_range_or_right_is_refused(errors, name):
    assert errors.seen[name] == ([], [(getattr(Errors, name.upper()), ACCESS)])


def test_a_refusal_of_the_peer_ends_the_queue_pair_and_what_follows_is_flushed(errors):
    ours, _ = errors.seen["ours"]
    assert ours == [Done(Errors.OURS, 1, ACCESS, 0), Done(Errors.OURS, 2, FLUSHED, 0)]


def test_a_piece_beyond_its_region_is_not_sent(errors):
    assert errors.seen["local"][0] == [Done(Errors.LOCAL, 3, PROTECTION, 0)]
    assert (4, Errors.LOCAL) not in errors.told()


def test_a_peer_whose_receive_is_posted_late_tries_again(errors):
    ours, theirs = errors.seen["late"]
    assert ours == [Done(Errors.LATE, 4, SUCCESS, 8)]
    assert theirs == [(4, SUCCESS)]


def test_a_lost_packet_is_sent_again(errors):
    assert errors.dropped
    assert errors.seen["gap"][0] == [Done(Errors.GAP, 5, SUCCESS, 0)]
    assert bytes(errors.both.end.memory[9000:9300]) == errors.memory[:300]


def test_an_answer_that_is_lost_is_waited_for_so_long_and_asked_for_again(errors):
    assert errors.lost == [17, 16]
    assert [found for found, _ in errors.seen["lost"]] == [
        [Done(Errors.LOST, 7, SUCCESS, 0)], [Done(Errors.LOST, 8, SUCCESS, 0)]
    ]  # fmt: skip
    assert bytes(errors.both.end.memory[9400:9440]) == errors.memory[40:80]
    assert errors.seen["after"][0][3100:3140] == errors.memory[80:120]


def test_immediate_data_both_ways(errors):
    ours, theirs, gates, peers = errors.seen["prompt"]
    qp = Errors.PROMPT
    assert ours == [Done(qp, 1, SUCCESS, 0), Done(qp, 2, SUCCESS, 0)]
    assert [number for number, _ in theirs] == [1, 2]
    assert [data for _, data in theirs] == [0x01020304, 5]
    assert gates == [Done(qp, 11, SUCCESS, 8, 0x0A0B0C0D), Done(qp, 12, SUCCESS, 300, 6)]
    assert peers == [(3, SUCCESS), (4, SUCCESS)]


def test_a_message_longer_than_its_receive_is_refused_on_both_sides(errors):
    assert errors.seen["long"] == ([Done(Errors.LONG, 6, LOCAL_LENGTH, 0)], [(Errors.LONG, INVALID)])


def test_nothing_was_written_that_was_refused(errors):
    region, closed = errors.seen["after"]
    changed = [at for at in range(BYTES) if region[at] != errors.memory[at]]
    allowed = {*range(3000, 3008), *range(4000, 4020), *range(3100, 3140), *range(3200, 3240)}
    allowed |= {*range(3300, 3600)}
    assert set(changed) <= allowed
    assert closed == bytes(64)


def test_a_bind_that_is_completed_leaves_no_packet_writing():
    """It destroys a window while the RQ's engine writes a packet's payload there: the packet was looked up
    before (all of it lies in one page), so it goes on, and the bind is completed behind it.  The next one is
    refused."""
    both = CoSimulation((2, 3), mtu=1024)
    seen = {}

    async def script(context):
        host, end = both.host, both.end
        region = host.region(VA, BYTES, PD, ALL)
        end.memory[:1024] = data_of(1024)
        for _ in range(2):
            post(both.peers[2], WRITE, [end.sge(0, 1024)], va=VA + 300, rkey=region.key)
        mover = both.bench.subsystem.movers[1].bus.valid
        await both.until(context, lambda: context.get(mover))
        seen["begun"] = host.read_bytes(region, 300, 1024).count(0)
        await host.post_invalidate(context, 3, region.key, work=9)
        found, _ = await both.completed(context)
        seen["bind"] = found
        seen["then"] = host.read_bytes(region, 0, BYTES)
        seen["peer"] = (await both.completed(context, 0, 2))[1]
        seen["later"] = host.read_bytes(region, 0, BYTES)

    both.run(script)
    assert seen["bind"] == [Done(3, 9, SUCCESS, 0)]
    assert seen["begun"] > 900
    assert seen["then"][300:1324] == data_of(1024)
    assert seen["then"] == seen["later"]
    assert [status for _, status in seen["peer"]] == [SUCCESS, ACCESS]


class Window:
    """Messages of the gates under way together, whose acknowledgements or packets are lost."""

    TOGETHER, GAP = 2, 3
    BYTES = 40

    def __init__(self):
        self.both = both = CoSimulation((2, 3))
        self.memory, self.seen, self.lost = data_of(BYTES, 8), {}, []
        both.run(self.script)

    async def writes(self, context, qp, count):
        """``count`` WRITEs at once."""
        both, end = self.both, self.both.end
        for work in range(count):
            piece = self.region.piece(self.BYTES * work, self.BYTES)
            await both.host.post_send(context, qp, WRITE_MESSAGE, (piece,), work=work, key=end.key.rkey,
                                      va=end.va + 2000 * qp + self.BYTES * work)  # fmt: skip
        self.seen[qp] = (await both.completed(context, count))[0]

    async def script(self, context):
        both = self.both
        self.region = both.host.region(VA, BYTES, PD, ALL)
        both.host.write_bytes(self.region, 0, self.memory)
        self.first = len(both.packets)
        both.change = self.lose_acknowledgements
        await self.writes(context, self.TOGETHER, 5)
        self.lost = []
        both.change = self.lose_second
        await self.writes(context, self.GAP, 3)

    def lose_acknowledgements(self, who, data):
        """Of the first three messages."""
        if who == "software" and len(self.lost) < 3:
            self.lost.append(data)
            return None
        return data

    def lose_second(self, who, data):
        """The second message."""
        if who == "gates" and not self.lost and headers(data).psn == self.both.psns[0] + 1:
            self.lost.append(data)
            return None
        return data

    def sent(self, qp):
        """(opcode, PSN behind the first one) of what has gone on a queue pair."""
        number, first = self.both.peers[qp].number, self.both.psns[0]
        found = [headers(data) for who, data in self.both.packets if who == "gates"]
        return [(bth.opcode, bth.psn - first) for bth in found if bth.dest_qp == number]


@pytest.fixture(scope="module")
def window():
    return Window()


def placed(window, qp, count):
    """Whether the peer has what the first so many messages of a queue pair bring."""
    length = window.BYTES * count
    return bytes(window.both.end.memory[2000 * qp : 2000 * qp + length]) == window.memory[:length]


def test_four_messages_of_the_gates_are_under_way_and_one_acknowledgement_is_of_all(window):
    assert len(window.lost) == 1
    assert window.seen[window.TOGETHER] == [Done(window.TOGETHER, work, SUCCESS, 0) for work in range(5)]
    assert placed(window, window.TOGETHER, 5)
    assert window.sent(window.TOGETHER) == [(10, psn) for psn in range(5)]
    # the fourth went before an acknowledgement came, the fifth behind it
    sides = [who for who, _ in window.both.packets[window.first :]]
    answers = [at for at, who in enumerate(sides) if who == "software"]
    assert sides[: answers[3]].count("gates") == 4
    assert sides[: answers[4]].count("gates") == 5


def test_behind_a_gap_only_what_is_not_acknowledged_goes_again(window):
    assert window.seen[window.GAP] == [Done(window.GAP, work, SUCCESS, 0) for work in range(3)]
    assert placed(window, window.GAP, 3)
    psns = [psn for _, psn in window.sent(window.GAP)]
    assert psns.count(0) == 1
    assert psns[-2:] == [1, 2]
    assert 4 <= len(psns) <= 5
