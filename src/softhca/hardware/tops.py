# amaranth: UnusedElaboratable=no
"""What is exported as Verilog, by the names of the Verilog modules: each block in its real size, the
micro-engine, the remote-key manager and its rejected twin, and the assembled adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from softhca.hardware.completion_engine import CompletionEngine
from softhca.hardware.context_memory import ContextMemory
from softhca.hardware.doorbell_manager import DoorbellManager
from softhca.hardware.engine import MicroEngine
from softhca.hardware.fifo import ReceiveFifo, SendFifo
from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.host_interface import HostArbiter, HostPort
from softhca.hardware.key_memory import KEYS, VIS, Geometry, RemoteKeyMemory
from softhca.hardware.local_bus import LocalBusInterface
from softhca.hardware.payload_mover import PayloadMover
from softhca.hardware.retry_timer import RetryTimer
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.rmb_registers import RmbRegisters
from softhca.hardware.serial import SerialReceiver, SerialTransmitter
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.translation import Translation
from softhca.hardware.wake_up import WakeUp
from softhca.hardware.work_scheduler import WorkScheduler

REQUESTERS = 7
"""On the host's memory: two engines' ports, movers and look-ups, and the completion engine."""
QUEUES = 8
"""Completion queues."""
MANAGER, WHOLE = "remote_key_manager", "subsystem"


class Top(NamedTuple):
    """What is exported: ``build`` makes it, with ``sizes`` by name, which have these values if not told."""

    told: str
    build: Callable[..., Any]
    sizes: Mapping[str, int] = {}


_VIS, _ROWS, _QUEUES = {"vis": VIS}, {"vis": VIS, "keys": KEYS}, {"queues": QUEUES}

TOPS: dict[str, Top] = {
    MANAGER: Top("the remote-key manager: walk, memory, precedence", RemoteKeyManager, _ROWS),
    "remote_key_memory": Top(
        "its memory alone", lambda vis, keys: RemoteKeyMemory(Geometry(vis, keys)), _ROWS
    ),
    "remote_key_registers": Top(
        "the manager on the two engines' buses",
        lambda vis, keys: RmbRegisters(RemoteKeyManager(vis, keys)),
        _ROWS,
    ),
    "fixed_function_manager": Top("the same search without a hand-over", FixedFunctionManager, _ROWS),
    "micro_engine": Top("a micro-engine with its memory", MicroEngine),
    "serial_receiver": Top("half words into words, VCRC checked", SerialReceiver),
    "serial_transmitter": Top("replies and requests onto the line, VCRC made", SerialTransmitter),
    "receive_fifo": Top("received packets and their header errors", ReceiveFifo),
    "send_fifo": Top("packets to send, ICRC made", SendFifo),
    "host_arbiter": Top("turns on the host's memory", lambda: HostArbiter(REQUESTERS)),
    "host_port": Top("an engine's way to it, and descriptors", HostPort),
    "payload_mover": Top("payload between host memory and the FIFOs", PayloadMover),
    "context_memory": Top("64 words a queue pair", ContextMemory, _VIS),
    "doorbell_manager": Top("outstanding work requests", DoorbellManager, _VIS),
    "wake_up": Top("queue pairs that an engine puts before a scheduler", WakeUp, _VIS),
    "retry_timer": Top("time, and later turns of queue pairs that wait", RetryTimer, _VIS),
    "work_scheduler": Top("the next queue pair of a side", WorkScheduler, _VIS),
    "completion_engine": Top("completions and events", CompletionEngine, _QUEUES),
    "translation": Top("look-up in the translation and protection table", Translation),
    "local_bus_interface": Top("the host software's words", LocalBusInterface, _VIS | _QUEUES),
    WHOLE: Top("the assembled adapter", Subsystem, _VIS | _QUEUES),
}


def build(name: str, **sizes: int) -> Any:
    """One of `TOPS`; ValueError for a name or a size that it does not have, or a size out of bounds."""
    if name not in TOPS:
        raise ValueError(f"no part {name!r}: {', '.join(TOPS)}")
    top = TOPS[name]
    for size in sizes:
        if size not in top.sizes:
            raise ValueError(f"{name} has no size {size!r}")
    return top.build(**{**top.sizes, **sizes})
