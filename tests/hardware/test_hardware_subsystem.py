# amaranth: UnusedElaboratable=no
"""The assembled adapter: the story of a window that is taken away, and that no moment lets a key through."""

import contextlib
import functools
import io
import json
from types import SimpleNamespace
from typing import NamedTuple

import pytest

pytest.importorskip("amaranth")

from hardware_bench import words_of

from softhca.cli.main import main
from softhca.cli.rmb_subsystem import LEAST_VIS, document, write_packet
from softhca.hardware import completion_engine as ce
from softhca.hardware import local_bus as lb
from softhca.hardware import subsystem_story as story_of
from softhca.hardware.assembler import assemble
from softhca.hardware.context_memory import RECEIVE, SEND
from softhca.hardware.designs import FIXED, MANAGER, MICROCODE, SEARCHERS
from softhca.hardware.microcode_files import microcode_program
from softhca.hardware.subsystem import RegisterBank, Subsystem
from softhca.hardware.subsystem_bench import SubsystemBench
from softhca.hardware.subsystem_story import (
    LATE_QP,
    OTHER_QP,
    WINDOW_KEY,
    WINDOW_QP,
    WRITE_FIRST,
    WRITE_MIDDLE,
    tell,
)


class Told(NamedTuple):
    """What the command printed, and the story that it told."""

    story: story_of.Story
    text: str


@functools.cache
def subsystem(vis, design=MANAGER):
    """The same object for all tests that want such an adapter: it is elaborated once."""
    return Subsystem(vis, design=design)


@pytest.fixture(scope="module")
def told():
    stories = []

    def kept(*words):
        stories.append(tell(*words))
        return stories[-1]

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(story_of, "tell", kept)
        assert main(["rmb", "subsystem", "--vis", "64", "--json"]) == 0
    return Told(*stories, out.getvalue())


@pytest.fixture
def story(told):
    return told.story


def test_the_story_is_as_it_must_be(story):
    assert story.faults() == []


def test_the_window_is_destroyed_before_its_keys_are_searched_for_and_told_afterwards(story):
    order = [(row.what, row.values.get("qp")) for row in story.happenings if row.values.get("qp") != OTHER_QP]
    assert order == [
        ("accepted", WINDOW_QP),
        ("posts a bind", story_of.BINDING_QP),
        ("searches", None),
        ("clears a key", WINDOW_QP),
        ("done", None),
        ("finds the completion", story_of.BINDING_QP),
        ("key refused", WINDOW_QP),
        ("key refused", LATE_QP),
        ("is told of a refused key", WINDOW_QP),
        ("is told of a refused key", LATE_QP),
    ]


def test_the_rq_engine_is_as_fast_beside_the_search_as_without_it(story):
    taken = story.taken_during_walk()
    elsewhere = story.accepted_elsewhere()
    assert len(taken) >= 2
    assert len(elsewhere) >= 2
    assert {row.values["clocks"] for row in taken} == {row.values["clocks"] for row in elsewhere}


@pytest.fixture
def placed(monkeypatch):
    """Microcode is there in no time: over the bus, as in the other story, it takes most of the clocks."""
    monkeypatch.setattr(SubsystemBench, "load", SubsystemBench.place_program)


@pytest.mark.usefixtures("placed")
def test_traffic_does_not_wait_for_a_search_in_fixed_hardware_either():
    """It stands in the manager's place; what is wrong with it are its races."""
    story = tell(write_packet, LEAST_VIS, None, FIXED)
    assert story.faults() == []
    beside, elsewhere = story.taken_during_walk(), story.accepted_elsewhere()
    assert len(beside) >= 2
    assert {row.values["clocks"] for row in beside} == {row.values["clocks"] for row in elsewhere}


@pytest.mark.usefixtures("placed")
def test_all_traffic_waits_for_a_search_in_microcode_alone():
    """The packet that the RQ's engine is in takes as much longer as the search takes; the others wait."""
    story = tell(write_packet, LEAST_VIS, None, MICROCODE)
    assert story.faults() == []
    assert story.taken_during_walk() == []
    begins, ends = story.walk
    walk = ends - begins
    matching = 32 + sum(qp % 2 for qp in (WINDOW_QP, OTHER_QP, LATE_QP))
    assert walk == 17 * matching + 5 * (64 - matching) + 12  # with what is before and behind the rows
    (usual,) = {row.values["clocks"] for row in story.accepted_elsewhere()}
    longest = max(row.values["clocks"] for row in story.happenings if row.who == "RQ engine")
    assert usual + walk <= longest <= usual + walk + 8  # and it shares host memory with the bind
    assert walk < longest <= story.pause_clocks


def test_an_engine_that_took_a_packet_while_it_stands_is_named(story):
    rows = [
        row._replace(who=SEARCHERS[MICROCODE]) if row.who == SEARCHERS[MANAGER] else row
        for row in story.happenings
    ]
    assert story._replace(design=MICROCODE, happenings=rows).faults() == [
        "a packet was taken by an engine that stands"
    ]


def test_a_story_without_packets_beside_the_search_has_no_pause(story):
    rows = [row for row in story.happenings if row.who != "RQ engine"]
    assert story._replace(happenings=rows).pause_clocks == 0


def test_a_design_that_there_is_not_is_refused():
    with pytest.raises(KeyError, match="by hand"):
        Subsystem(8, design="by hand")


def test_the_walk_takes_six_clocks_a_row_of_the_domain_and_two_of_others_and_waits_for_the_rq(story):
    begins, ends = story.walk
    # half of the rows, and the three queue pairs that receive: those with odd numbers add to them
    matching = 32 + sum(qp % 2 for qp in (WINDOW_QP, OTHER_QP, LATE_QP))
    least = 6 * matching + 2 * (64 - matching)
    assert least <= ends - begins <= least + 8 * len(story.taken_during_walk()) + 8


def test_the_document_says_what_the_story_says(story):
    found = document(story)
    assert found["walk"]["packets_taken"] == len(story.taken_during_walk())
    assert found["refused_queue_pairs"] == [WINDOW_QP, LATE_QP]
    assert found["bind_status"] == 0
    assert [row["what"] for row in found["happenings"]] == [row.what for row in story.happenings]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"status": 6}, "completed with status 6"),
        ({"status": None}, "completed with status None"),
        ({"window": 1 << 31}, "still stands"),
        ({"events": [1]}, "was not told"),
        ({"psns": {1: 2, 2: 9, 3: 0}}, "moved the PSN on"),
    ],
)
def test_a_story_that_goes_wrong_is_named(story, changes, fault):
    assert any(fault in text for text in story._replace(**changes).faults())


def test_a_story_without_refusals_is_named(story):
    accepted = [
        row._replace(what="accepted") if row.what == "key refused" else row for row in story.happenings
    ]
    found = story._replace(happenings=accepted).faults()
    assert len(found) == 2
    assert all("was not refused" in text for text in found)


def test_a_table_too_small_for_the_story_is_refused():
    with pytest.raises(ValueError, match="64 queue pairs or more"):
        tell(write_packet, 32)
    assert LEAST_VIS == story_of.LEAST_VIS


def test_the_command_tells_the_story(told):
    assert json.loads(told.text) == document(told.story)


def test_the_command_writes_waveforms(story, tmp_path, monkeypatch, capsys):
    """Of a few clocks of a small adapter, which the story that is told had not."""
    waves = tmp_path / "adapter.vcd"

    async def begins(teller, context):
        await teller.bench.write(context, lb.TPT_ENTRIES, 1)
        teller.bench.happenings.extend(story.happenings)
        teller.bench.memory[story_of.TABLE + 8 * WINDOW_KEY + 4] = story.window
        teller.status, teller.events, teller.psns = story.status, story.events, story.psns

    monkeypatch.setattr(story_of, "Subsystem", lambda vis, design: subsystem(8, design))
    monkeypatch.setattr(story_of._Run, "script", begins)
    assert main(["rmb", "subsystem", "--vis", "64", "--json", "--vcd", str(waves)]) == 0
    assert json.loads(capsys.readouterr().out)["happenings"] == document(story)["happenings"]
    text = waves.read_text()
    for name in ("sq_engine", "rq_engine", "manager", "receive_fifo", "arbiter", "$enddefinitions"):
        assert name in text


def test_the_command_prints_the_table_and_fails_where_the_story_does(story, monkeypatch, capsys):
    told = [story, story._replace(status=6), story]
    asked = []
    monkeypatch.setattr(story_of, "tell", lambda *words: asked.append(words[-1]) or told.pop(0))
    assert main(["rmb", "subsystem", "--vis", "64"]) == 0
    out = capsys.readouterr().out
    begins, ends = story.walk
    assert "key refused" in out
    assert f"The search took {ends - begins} clocks" in out
    assert main(["rmb", "subsystem", "--vis", "64"]) == 1
    assert "completed with status 6" in capsys.readouterr().err
    assert main(["rmb", "subsystem", "--vis", "64", "--design", "microcode"]) == 0
    assert asked == [MANAGER, MANAGER, MICROCODE]


@pytest.mark.parametrize("vis", ["32", "65", "8192", "0"])
def test_the_command_refuses_sizes_that_cannot_be(vis, capsys):
    assert main(["rmb", "subsystem", "--vis", vis]) == 2
    assert "power of two in 64…4096" in capsys.readouterr().err


class Moments(story_of._Run):
    """The same, but packets of the window's message all the while, and the bind some clocks after the first;
    what is refused comes again."""

    def __init__(self, bench, delay):
        super().__init__(bench, write_packet)
        self.delay = delay
        self.completed = None

    async def script(self, context):
        await self._prepare(context)
        self._arrives(WINDOW_QP, WRITE_FIRST, WINDOW_KEY)
        await context.tick().repeat(self.delay)
        await self._bind(context)
        await self._until(context, self._bound_beside_the_window)
        self.completed = self.bench.clock
        sent = self.sent
        await self._until(context, lambda: self._more() and self.sent >= sent + 3)

    @property
    def sent(self):
        return sum(self._sent.values())

    def _bound_beside_the_window(self):
        return self._more() and self._completed()

    def _more(self):
        if self._waiting() == 0:
            rows = [row for row in self.bench.happenings if row.who == "RQ engine"]
            psn = sum(row.what == "accepted" for row in rows)
            self.bench.arrivals.append(write_packet(WRITE_MIDDLE, WINDOW_QP, psn, None))
            self._sent[WINDOW_QP] += 1
        return True


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("design", [MANAGER, MICROCODE])
@pytest.mark.parametrize("delay", [1, 40, 60, 80, 110])
def test_no_moment_of_a_bind_lets_the_key_through_once_it_is_completed(delay, design):
    bench = SubsystemBench(subsystem(8, design=design))
    teller = Moments(bench, delay)
    bench.run(teller.script)
    assert teller.status == 0
    rows = [row for row in bench.happenings if row.who == "RQ engine"]
    after = [row.what for row in rows if row.clock - row.values["clocks"] > teller.completed]
    assert len(after) >= 2
    assert set(after) == {"key refused"}
    verdicts = [row.what for row in rows]
    refused = verdicts.index("key refused")
    assert set(verdicts[:refused]) <= {"accepted"}
    assert set(verdicts[refused:]) == {"key refused"}


def test_the_local_bus_reaches_every_space():
    bench = SubsystemBench(subsystem(8))
    seen = {}

    async def script(context):
        async def write(address, data):
            await bench.write(context, address, data)

        async def read(address):
            return await bench.read(context, address)

        await write(lb.TPT_BASE_LOW, 0x89ABCDE8)
        await write(lb.TPT_BASE_HIGH, 0xFFF)
        await write(lb.TPT_ENTRIES, 1 << 27)
        seen["control"] = [await read(number) for number in (1, 2, 3)]
        await bench.load(context, SEND, (0x3C0001, 5))
        await bench.load(context, RECEIVE, (7, 9, 11))
        seen["microcode"] = [await read(lb.MICROCODE + place) for place in (0, 1, 0x1000, 0x1001, 0x1002)]
        for place in (0, 17, 127):
            await write(lb.CONTEXTS + place, 1000 + place)
        await write(lb.CONTEXTS + 512, 5)  # the ninth of eight queue pairs
        seen["contexts"] = [await read(lb.CONTEXTS + place) for place in (0, 17, 127, 512)]
        await write(0x8000, 1)
        await write(0x200, 1)
        seen["nothing"] = [await read(number) for number in (0x8000, 0x200, 0x180, 15, lb.EVENT_STATUS)]
        await write(lb.DOORBELL, RECEIVE << 31 | 3 << 16 | 0xFFFF)
        refused = [await read(lb.DOORBELL)]
        await write(lb.DOORBELL, RECEIVE << 31 | 3 << 16 | 1)
        refused.append(await read(lb.DOORBELL))
        seen["doorbell"] = [*refused, await bench.get_context(context, 3, "RQ_OUTSTANDING")]
        bench.arrivals.append(bytes(10))
        await context.tick().repeat(10)
        seen["drops"] = await read(lb.RX_DROPS)

    bench.run(script)
    assert seen == {
        "control": [0x89ABCDE8, 0xFFF, 1 << 27],
        "microcode": [0x3C0001, 5, 7, 9, 11],
        "contexts": [1000, 1017, 1127, 0],
        "nothing": [0, 0, 0, 0, 0],
        "doorbell": [0, 1, 0xFFFF],
        "drops": 1 | 7 << 16,
    }


def test_levels_decide_who_is_served_and_an_overflow_is_told():
    """Two binds that fail at once (their descriptors are not binds): the higher level's completes first."""
    bench = SubsystemBench(subsystem(8))
    ring, queues = 0x5000, 0x9000
    told = {}

    async def script(context):
        await bench.write(context, lb.COMPLETION_QUEUES + 8 + ce.BASE_LOW, ring)
        await bench.write(context, lb.COMPLETION_QUEUES + 8 + ce.SIZE, 1)
        await bench.write(context, lb.COMPLETION_QUEUES + 8 + ce.ARM, ce.ARM_NEXT)
        for qp in (1, 2, 5):
            base = queues + 64 * qp
            bench.memory[base], bench.memory[base + 4] = 9, 70 + qp
            await bench.set_context(context, qp, SQ_BASE=base, SQ_MASK=0, SQ_CQ=1, SQ_HEAD=0)
        await bench.write(context, lb.LEVEL, 2 << 16 | 3)
        await bench.write(context, lb.LEVEL, 5 << 16 | 9)
        for qp in (1, 2, 5):
            await bench.write(context, lb.DOORBELL, qp << 16 | 1)
        await bench.place_program(context, SEND, microcode_program("send").halves)
        await bench.write(context, lb.RUN, 1 << SEND)
        await context.tick().repeat(700)
        told["events"] = await bench.read(context, lb.COMPLETION_EVENTS)
        told["overflows"] = await bench.read(context, lb.OVERFLOW_EVENTS)
        await bench.write(context, lb.COMPLETION_EVENTS, 2)
        told["taken"] = await bench.read(context, lb.COMPLETION_EVENTS)
        told["left"] = [await bench.get_context(context, qp, "SQ_OUTSTANDING") for qp in (1, 2, 5)]

    bench.run(script)
    # the first doorbell is offered at once; of the others the higher level goes first, the third overflows
    assert [bench.memory[ring + 4], bench.memory[ring + 20]] == [71, 75]
    assert told == {"events": 2, "overflows": 2, "taken": 0, "left": [0, 0, 0]}


@pytest.mark.parametrize("high", [0, 0xABC])
def test_the_table_is_and_ends_where_the_host_has_said(high):
    """Two binds whose windows are the last entry of the table, anywhere in 16 TiB, and the one behind it, of
    the same domain."""
    bench = SubsystemBench(subsystem(8), limit=1 << 44)
    ring, queues, table, entries, domain = 0x5000, 0x9000, high << 32 | 0x2_0000, 8, 5
    last = table + 8 * (entries - 1)

    async def script(context):
        await bench.write(context, lb.TPT_BASE_LOW, table & 0xFFFFFFFF)
        await bench.write(context, lb.TPT_BASE_HIGH, high)
        await bench.write(context, lb.TPT_ENTRIES, entries)
        await bench.write(context, lb.COMPLETION_QUEUES + ce.BASE_LOW, ring)
        await bench.write(context, lb.COMPLETION_QUEUES + ce.SIZE, 2)
        for qp, key in ((1, entries), (2, entries - 1)):
            base = queues + 128 * qp
            for word, value in enumerate((8, 70 + qp, 1, key)):
                bench.memory[base + 4 * word] = value
            bench.memory[table + 8 * key + 4] = 1 << 31 | domain
            await bench.set_context(context, qp, SQ_BASE=base, SQ_MASK=0, SQ_PD=domain)
            await bench.write(context, lb.DOORBELL, qp << 16 | 1)
        await bench.place_program(context, SEND, microcode_program("send").halves)
        await bench.write(context, lb.RUN, 1 << SEND)
        await context.tick().repeat(1500)

    bench.run(script)
    assert [bench.memory[ring + 16 * one + 4 * word] for one in range(2) for word in (1, 2)] == [71, 6, 72, 0]
    assert (bench.memory[last + 4], bench.memory[last + 12]) == (0, 1 << 31 | domain)


def test_a_register_that_no_block_has_or_two_have_is_refused():
    with pytest.raises(ValueError, match="0 blocks have the register host_address"):
        RegisterBank("SQ", [])
    ports = [SimpleNamespace(host_address=None), SimpleNamespace(write_host_address=None)]
    with pytest.raises(ValueError, match="2 blocks have the register host_address"):
        RegisterBank("SQ", ports)


SENDS = """
        .engine {engine}
        .name   word, r0
        move    HOST_ADDRESS, {source}
        move    HOST_COMMAND, {fetch}
busy:   bit     HOST_STATUS, 0
        jump.nz busy
next:   move    TX_WORD, HOST_DESCRIPTOR_WORD
        move    word, HOST_DESCRIPTOR
        and     word, 1
        move    TX_PUSH, word
        move    HOST_DESCRIPTOR_POP, 0
        bit     HOST_DESCRIPTOR, 31
        jump.nz next
        halt
"""


QUEUES_UP = """
        .engine {engine}
        .set    CLOCKS, {wait}
        move    r1, CLOCKS
waits:  sub     r1, 1
        jump.nz waits
        move    TX_WORD, {engine_word}
        move    r1, {words}
pushes: move    TX_PUSH, 0
        sub     r1, 1
        jump.nz pushes
        move    TX_PUSH, 1
        move    r1, 8
sealed: sub     r1, 1           ; the ICRC is put behind it
        jump.nz sealed
        move    r1, 8
again:  move    TX_PUSH, 0
        sub     r1, 1
        jump.nz again
        move    TX_PUSH, 1
        halt
"""


def test_replies_leave_before_requests_that_have_waited_longer():
    """The SQ's engine has a long packet on the line and a short one behind it when the RQ's has its two."""
    bench = SubsystemBench(subsystem(8))

    async def script(context):
        for engine, (name, wait, words) in enumerate((("SQ", 1, 200), ("RQ", 350, 8))):
            source = QUEUES_UP.format(engine=name, wait=wait, words=words, engine_word=engine + 1)
            await bench.load(context, engine, assemble(source).halves)
        await bench.write(context, lb.RUN, 3)
        await context.tick().repeat(1600)

    bench.run(script)
    assert [packet[3] for packet in bench.departed] == [1, 2, 2, 1]
    assert len(bench.departed[0]) > 800


def test_both_engines_fetch_from_the_host_and_send():
    """Each engine takes the words of a packet in as a descriptor and sends them; the packets come back."""
    bench = SubsystemBench(subsystem(8))
    packets = [write_packet(WRITE_MIDDLE, qp, 9, None) for qp in (5, 6)]
    words = [words_of(packet[:-6]) for packet in packets]
    for engine, sent in enumerate(words):
        for i, word in enumerate(sent):
            bench.memory[0x4000 * (engine + 1) + 4 * i] = word
    received = []

    async def script(context):
        for engine, name in enumerate(("SQ", "RQ")):
            fetch = 3 | len(words[engine]) << 8
            source = SENDS.format(engine=name, source=0x4000 * (engine + 1), fetch=fetch)
            await bench.load(context, engine, assemble(source).halves)
        await bench.write(context, lb.RUN, 3)
        await bench.until_halted(context, SEND)
        await bench.until_halted(context, RECEIVE)
        await context.tick().repeat(80)
        bench.arrivals.extend(bench.departed)
        await context.tick().repeat(60)
        received.append(context.get(bench.subsystem.receive_fifo.rx_status))
        received.append(await bench.read(context, lb.RX_DROPS))

    bench.run(script)
    assert sorted(bench.departed) == sorted(packets)
    assert received == [1 << 31 | len(packets[0]) // 4 << 16 | 1, 0]
