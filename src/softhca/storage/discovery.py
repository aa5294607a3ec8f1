"""How a host finds the I/O controllers of a unit: by device management (IBTA vol. 1, 16.3; SRP annex B)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from softhca.driver import services
from softhca.driver.agents import MadAddress
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.management import device_attributes as dm
from softhca.management.constants import CLASS_DEV_MGT, METHOD_GET, STATUS_OK
from softhca.management.device_attributes import IoControllerProfile, IoUnitInfo, ServiceEntry
from softhca.management.mad import Mad, MadHeader
from softhca.storage import srp
from softhca.storage.errors import StorageError

Ask = Callable[[bytes], bytes]


@dataclass(frozen=True)
class UnitAddress:
    """Where a unit's port is: its GID, and on native links its LID.  ``port``: the number by which RDMA CM
    connects to it (0: by the service ID that device management tells).
    """

    gid: bytes
    lid: int = 0
    port: int = 0

    @property
    def management(self) -> MadAddress:
        """Its queue pair 1."""
        return MadAddress(gid=None if self.lid else self.gid, dlid=self.lid)


@dataclass(frozen=True)
class Controller:
    """A controller of a unit: the ``slot`` that it is in, its profile, its services."""

    slot: int
    profile: IoControllerProfile
    services: tuple[ServiceEntry, ...]

    @property
    def target(self) -> tuple[bytes, int] | None:
        """The identifier of its SRP target port, and the service ID; None where it is no SRP target."""
        found = self.profile
        if (found.io_class, found.io_subclass, found.protocol) != (
            srp.IO_CLASS, srp.IO_SUBCLASS, srp.PROTOCOL,
        ):  # fmt: skip
            return None
        for each in self.services:
            extension = srp.extension_of(each.name)
            if extension is not None:
                return extension.to_bytes(8, "big") + found.guid.to_bytes(8, "big"), each.service_id
        return None


def find_controllers(device: DeviceDriver, port: int, unit: UnitAddress) -> list[Controller]:
    """The controllers of the unit, asked for by a port of ``device``.

    StorageError ETIMEDOUT: nobody has answered; EPROTO: there is an answer that cannot be.
    """
    try:
        with services.asking(device, port, CLASS_DEV_MGT, unit.management) as ask:
            info = IoUnitInfo.decode(_get(ask, dm.ATTRIBUTE_IO_UNIT_INFO))
            return [
                _controller(ask, slot)
                for slot in range(1, info.max_controllers + 1)
                if info.slot(slot) == dm.SLOT_PRESENT
            ]
    except DriverError as error:
        raise StorageError(error.errno, f"the I/O unit: {error.message}") from None


def _get(ask: Ask, attribute: int, modifier: int = 0) -> bytes:
    """The data of an attribute; StorageError EPROTO where the answer is a refusal, or another attribute."""
    header = MadHeader(
        management_class=CLASS_DEV_MGT,
        method=METHOD_GET,
        attribute_id=attribute,
        attribute_modifier=modifier,
    )
    answer = Mad.decode(ask(Mad.make(header).encode()))
    found = answer.header
    if found.status != STATUS_OK or (found.attribute_id, found.attribute_modifier) != (attribute, modifier):
        raise StorageError(
            errno.EPROTO, f"the I/O unit answers for attribute {attribute:#x} with status {found.status:#x}"
        )
    return answer.data


def _controller(ask: Ask, slot: int) -> Controller:
    profile = IoControllerProfile.decode(_get(ask, dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, slot))
    entries: list[ServiceEntry] = []
    for first in range(0, profile.service_entries, dm.SERVICES_A_MAD):
        last = min(first + dm.SERVICES_A_MAD, profile.service_entries) - 1
        modifier = dm.service_modifier(slot, first, last)
        answer = _get(ask, dm.ATTRIBUTE_SERVICE_ENTRIES, modifier)
        entries += dm.service_entries(answer, last - first + 1)
    return Controller(slot, profile, tuple(entries))
