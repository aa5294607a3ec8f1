"""An I/O controller: its logical units, and the sessions of all initiators that use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from softhca.management import device_attributes as dm
from softhca.management.device_attributes import IoControllerProfile, ServiceEntry
from softhca.storage import scsi, srp
from softhca.storage import task_states as states
from softhca.storage.disk import Disk
from softhca.storage.logical_unit import LogicalUnit, Plan, plan_without_unit
from softhca.storage.session import Management, TargetSession

if TYPE_CHECKING:
    from softhca.storage.io_unit import UnitConfig

MOST_UNITS = 256


class Controller:
    """The logical units of ``disks``, numbered from 0; ``guid`` is part of their serial numbers."""

    def __init__(self, guid: int, disks: Sequence[Disk], most_bytes: int) -> None:
        if not 0 < len(disks) <= MOST_UNITS:
            raise ValueError(f"a controller has 1…{MOST_UNITS} disks")
        self.units = [
            LogicalUnit(disk, number, f"{guid:016x}{number:04x}", most_bytes)
            for number, disk in enumerate(disks)
        ]
        self._luns = list(range(len(disks)))
        self._sessions: dict[TargetSession, None] = {}

    def add(self, session: TargetSession) -> None:
        """An initiator has a channel."""
        self._sessions[session] = None

    def remove(self, session: TargetSession) -> None:
        """It has none any more."""
        self._sessions.pop(session, None)

    # what sessions ask

    def has(self, lun: bytes) -> bool:
        """Whether there is a unit of this number."""
        number = srp.number_of(lun)
        return number is not None and number < len(self.units)

    def plan(self, lun: bytes, cdb: bytes) -> Plan:
        """The plan of a command for a unit; CheckCondition."""
        number = srp.number_of(lun)
        if number is None or number >= len(self.units):
            return plan_without_unit(cdb, self._luns)
        return self.units[number].plan(cdb, self._luns)

    def reset(self, session: TargetSession, lun: bytes, management: Management) -> None:
        """Abort all tasks of a unit; other initiators are told, with the status TASK ABORTED and by a unit
        attention at their next command.
        """
        number = srp.number_of(lun)
        for each in self._sessions:
            given = states.ABORT if each is session else states.CANCEL
            for task in list(each.tasks):
                if task.unit == number:
                    each.abort(task, management, given)
            if each is not session:
                each.attentions[number] = scsi.UNIT_RESET

    def managed(self, config: UnitConfig) -> ManagedDisks:
        """What device management says of it."""
        return ManagedDisks(config)


@dataclass(frozen=True)
class ManagedDisks:
    """The controller for the agent of device management."""

    config: UnitConfig

    def profile(self) -> IoControllerProfile:
        """A target of SRP (annex B)."""
        config = self.config
        return IoControllerProfile(
            guid=config.guid,
            io_class=srp.IO_CLASS,
            io_subclass=srp.IO_SUBCLASS,
            protocol=srp.PROTOCOL,
            protocol_version=srp.PROTOCOL_VERSION,
            service_connections=min(config.max_channels, 0xFFFF),
            initiators_supported=min(config.max_channels, 0xFFFF),
            send_queue_depth=config.request_limit,
            rdma_read_depth=16,
            send_bytes=config.max_message_bytes,
            rdma_bytes=config.max_transfer_bytes,
            operations=dm.SENDS_TO_IOC | dm.SENDS_FROM_IOC | dm.READS_FROM_IOC | dm.WRITES_FROM_IOC,
            service_entries=1,
            id_string=config.name.encode("ascii", "replace")[:64].ljust(64, b"\0"),
        )

    def services(self) -> list[ServiceEntry]:
        """The service of its target port."""
        return [ServiceEntry.named(srp.service_name(self.config.extension), self.config.service)]
