# amaranth: UnusedElaboratable=no
"""The microcontroller subsystem of the host-fabric adapter: two micro-engines and the blocks around them.

Theory of operation.  Each engine reads and writes its blocks' micro-registers over its own bus; a block that
both use has its registers twice.  What they share behind that is given in turns (host memory, completions),
has an owner (each word of the context), or an order (the line: replies first).  The remote-key manager lies
between the engines: the SQ's gives it a domain and a key, and its walk takes the clocks in which the RQ's
engine leaves the key memory alone.  The rejected designs of that search can stand in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import Const, EnableInserter, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from softhca.hardware.completion_engine import CompletionEngine
from softhca.hardware.context_memory import RECEIVE, SEND, ContextMemory
from softhca.hardware.designs import FIXED, MANAGER, MICROCODE
from softhca.hardware.doorbell_manager import DoorbellManager
from softhca.hardware.engine import MicroEngine
from softhca.hardware.fifo import ReceiveFifo, SendFifo
from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.host_interface import HostArbiter, HostPort
from softhca.hardware.local_bus import HostAccess, LocalBusInterface
from softhca.hardware.micro_registers import EngineBus, register_map
from softhca.hardware.payload_mover import PayloadMover
from softhca.hardware.ports import WORD_BITS, HostBus
from softhca.hardware.retry_timer import RetryTimer
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_registers import RmbRegisters
from softhca.hardware.serial import Line, SerialReceiver, SerialTransmitter
from softhca.hardware.shared_key_memory import SharedKeyMemory, SharedKeyRegisters
from softhca.hardware.translation import Translation
from softhca.hardware.wake_up import WakeUp
from softhca.hardware.work_scheduler import WorkScheduler

ENGINES = ("SQ", "RQ")
KEY_BLOCKS = ("remote-key manager", "remote-key memory")
_SEARCHES: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    MANAGER: (RemoteKeyManager, RmbRegisters),
    MICROCODE: (SharedKeyMemory, SharedKeyRegisters),
    FIXED: (FixedFunctionManager, RmbRegisters),
}
"""Of each design what stands between the engines, and its registers on their buses."""


class RegisterBank(wiring.Component):
    """The micro-registers of one engine, but the remote-key manager's, at their blocks.

    A block's register NAME is its port ``name`` where it is read and ``write_name`` where it is written.
    ``parts`` have every register once; ValueError otherwise.
    """

    def __init__(self, engine: str, parts: Sequence[Any]) -> None:
        self._registers = {
            register: self._part(register.name.lower(), parts)
            for register in register_map(engine).values()
            if register.block not in KEY_BLOCKS
        }
        super().__init__({"bus": In(EngineBus())})

    @staticmethod
    def _part(name: str, parts: Sequence[Any]) -> Any:
        found = [part for part in parts if hasattr(part, name) or hasattr(part, f"write_{name}")]
        if len(found) != 1:
            raise ValueError(f"{len(found)} blocks have the register {name}")
        return found[0]

    def elaborate(self, platform: Any) -> Module:
        """Two multiplexers and a strobe a register."""
        m = Module()
        bus = self.bus
        for register, part in self._registers.items():
            if "w" in register.access:
                write = getattr(part, f"write_{register.name.lower()}")
                m.d.comb += [
                    write.strobe.eq(bus.write_enable & (bus.write_address == register.number)),
                    write.data.eq(bus.write_data),
                ]
        for select, data in ((bus.read_address_a, bus.read_data_a), (bus.read_address_b, bus.read_data_b)):
            with m.Switch(select):
                for register, part in self._registers.items():
                    if "r" in register.access:
                        with m.Case(register.number):
                            m.d.comb += data.eq(getattr(part, register.name.lower()))
        return m


class _Progress:
    """What the SQ's engine sees of the receive FIFO."""

    def __init__(self, fifo: ReceiveFifo) -> None:
        self.rx_progress = fifo.rx_progress


class Subsystem(wiring.Component):
    """``vis`` queue pairs, a power of two; ``queues`` completion queues; FIFOs of ``words`` and ``packets``;
    ``design`` (`softhca.hardware.designs`) searches for keys.  KeyError for another one.

    ``receive`` and ``transmit`` are the link, ``host`` its host's memory, ``access`` the host's software.
    In microcode alone the RQ's engine stands between two instructions while the SQ's says that it walks.
    """

    def __init__(
        self, vis: int = 256, queues: int = 8, words: int = 2048, packets: int = 16, design: str = MANAGER
    ) -> None:
        self.vis = vis
        self.design = design
        manager, self._registers = _SEARCHES[design]
        self.context = ContextMemory(vis)
        self.doorbells = DoorbellManager(vis)
        self.completions = CompletionEngine(queues)
        self.receive_fifo = ReceiveFifo(words, packets)
        self.send_fifos = [SendFifo(words, packets) for _ in ENGINES]
        self.local = LocalBusInterface(vis, queues)
        self.schedulers = [WorkScheduler(vis) for _ in ENGINES]
        self.engines = [MicroEngine() for _ in ENGINES]
        self.writes = [Signal() for _ in ENGINES]  # an engine writes a block's register
        self.host_ports = [HostPort() for _ in ENGINES]
        self.translations = [Translation() for _ in ENGINES]
        self.movers = [PayloadMover() for _ in ENGINES]
        self.wake_up = WakeUp(vis)
        self.timer = RetryTimer(vis)
        self.manager = manager(vis)
        super().__init__(
            {
                "receive": In(Line()),
                "transmit": Out(Line()),
                "host": Out(HostBus()),
                "access": In(HostAccess()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Everything joined."""
        m = Module()
        m.submodules.context, m.submodules.doorbells = self.context, self.doorbells
        m.submodules.completions, m.submodules.local = self.completions, self.local
        m.submodules.keys = keys = self._registers(self.manager)
        m.submodules.wake_up, m.submodules.timer = self.wake_up, self.timer
        connect(m, self.timer.wake, self.wake_up.engine[SEND])
        self._link(m)
        self._host(m)
        for i, name in enumerate(ENGINES):
            parts: list[Any] = [
                self.host_ports[i],
                self.context.engine[i],
                self.completions.engine[i],
                self.doorbells.engine[i],
                self.schedulers[i].engine,
                self.translations[i],
                self.send_fifos[i],
                self.timer.engine if i == SEND else self.wake_up.engine[i],
            ]
            parts.append(self.receive_fifo if i == RECEIVE else _Progress(self.receive_fifo))
            bank = RegisterBank(name, parts)
            engine = self.engines[i]
            m.submodules[f"{name.lower()}_registers"] = bank
            stands: Value = Const(0)
            running: Any = engine
            if i == RECEIVE and self.design == MICROCODE:
                stands = self.manager.sq_walks
                running = EnableInserter(~stands)(engine)
            m.submodules[f"{name.lower()}_engine"] = running
            m.submodules[f"{name.lower()}_scheduler"] = self.schedulers[i]
            m.submodules[f"{name.lower()}_translation"] = self.translations[i]
            m.d.comb += self.writes[i].eq(engine.bus.write_enable & ~stands)
            self._join(m, engine.bus, self.writes[i], bank.bus, keys.sq if i == SEND else keys.rq)
            if i == SEND:
                connect(m, self.doorbells.put[i], self.timer.ring)
                connect(m, self.timer.put, self.wake_up.ring[i])
            else:
                connect(m, self.doorbells.put[i], self.wake_up.ring[i])
            connect(m, self.wake_up.put[i], self.schedulers[i].put)
            connect(m, self.local.level[i], self.schedulers[i].level)
            connect(m, self.local.microcode[i], engine.local)
            m.d.comb += [
                engine.run.eq(self.local.run[i]),
                self.local.halted[i].eq(engine.halted),
                self.translations[i].base.eq(self.local.tpt_base),
                self.translations[i].entries.eq(self.local.tpt_entries),
            ]
        connect(m, flipped(self.access), self.local.access)
        connect(m, self.local.ring, self.doorbells.ring)
        connect(m, self.local.completions, self.completions.host)
        connect(m, self.local.context, self.context.host)
        connect(m, self.doorbells.context, self.context.count)
        m.d.comb += self.local.rx_drops.eq(self.receive_fifo.rx_drops)
        return m

    def _link(self, m: Module) -> None:
        """Serial interface and FIFOs."""
        m.submodules.receiver = receiver = SerialReceiver()
        m.submodules.transmitter = transmitter = SerialTransmitter()
        m.submodules.receive_fifo = self.receive_fifo
        m.submodules.sq_send_fifo, m.submodules.rq_send_fifo = self.send_fifos
        connect(m, flipped(self.receive), receiver.line)
        connect(m, receiver.packet, self.receive_fifo.packet)
        connect(m, self.send_fifos[SEND].packet, transmitter.request)
        connect(m, self.send_fifos[RECEIVE].packet, transmitter.reply)
        connect(m, transmitter.line, flipped(self.transmit))

    def _host(self, m: Module) -> None:
        """The host interface's requesters."""
        requesters: list[Any] = [*self.host_ports, *self.movers, *self.translations, self.completions]
        m.submodules.arbiter = arbiter = HostArbiter(len(requesters))
        m.submodules.sq_host_port, m.submodules.rq_host_port = self.host_ports
        m.submodules.sq_mover, m.submodules.rq_mover = self.movers
        for port, mover, fifo in zip(self.host_ports, self.movers, self.send_fifos, strict=True):
            connect(m, port.move, mover.command)
            connect(m, mover.out, fifo.move)
        connect(m, self.movers[RECEIVE].inward, self.receive_fifo.move)
        for i, requester in enumerate(requesters):
            connect(m, requester.bus, arbiter.request[i])
        connect(m, arbiter.host, flipped(self.host))

    @staticmethod
    def _join(m: Module, engine: Any, writes: Signal, *blocks: Any) -> None:
        """Several blocks on an engine's bus; what a block does not have it shows as 0."""
        for block in blocks:
            m.d.comb += block.write_enable.eq(writes)
            for name in ("read_address_a", "read_address_b", "write_address", "write_data"):
                m.d.comb += getattr(block, name).eq(getattr(engine, name))
        for name in ("read_data_a", "read_data_b"):
            shown: Any = Const(0, WORD_BITS)
            for block in blocks:
                shown = shown | getattr(block, name)
            m.d.comb += getattr(engine, name).eq(shown)
