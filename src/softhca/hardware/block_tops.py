"""The interface blocks and the assembled adapter in their real sizes, by names of Verilog modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from softhca.hardware.completion_engine import CompletionEngine
from softhca.hardware.context_memory import ContextMemory
from softhca.hardware.doorbell_manager import DoorbellManager
from softhca.hardware.fifo import ReceiveFifo, SendFifo
from softhca.hardware.host_interface import HostArbiter, HostPort
from softhca.hardware.local_bus import LocalBusInterface
from softhca.hardware.serial import SerialReceiver, SerialTransmitter
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.translation import Translation
from softhca.hardware.work_scheduler import WorkScheduler

REQUESTERS = 5
"""On the host's memory: two engines' ports and look-ups, and the completion engine."""
VIS, COMPLETION_QUEUES = 256, 8

BLOCKS: dict[str, Callable[[], Any]] = {
    "serial_receiver": SerialReceiver,
    "serial_transmitter": SerialTransmitter,
    "receive_fifo": ReceiveFifo,
    "send_fifo": SendFifo,
    "host_arbiter": lambda: HostArbiter(REQUESTERS),
    "host_port": HostPort,
    "context_memory": lambda: ContextMemory(VIS),
    "doorbell_manager": lambda: DoorbellManager(VIS),
    "work_scheduler": lambda: WorkScheduler(VIS),
    "completion_engine": lambda: CompletionEngine(COMPLETION_QUEUES),
    "translation": Translation,
    "local_bus_interface": lambda: LocalBusInterface(VIS, COMPLETION_QUEUES),
}
"""Each block alone."""

WHOLE: dict[str, Callable[[], Any]] = {"subsystem": lambda: Subsystem(VIS, COMPLETION_QUEUES)}
"""Everything: it takes minutes to synthesize."""
