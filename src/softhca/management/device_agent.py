"""The agent of device management (IBTA vol. 1, 16.3): it tells hosts what an I/O unit has.

It answers at the adapter, or in the program that is the unit, which registers for the class: nothing here
knows which.
"""

from __future__ import annotations

from typing import Protocol

from softhca.management.agents import Agent
from softhca.management.attributes import ClassPortInfo
from softhca.management.constants import (
    ATTRIBUTE_CLASS_PORT_INFO,
    CLASS_DEV_MGT,
    METHOD_GET,
    METHOD_SET,
    STATUS_BAD_ATTRIBUTE,
    STATUS_BAD_VALUE,
    STATUS_OK,
)
from softhca.management.device_attributes import (
    ATTRIBUTE_IO_CONTROLLER_PROFILE,
    ATTRIBUTE_IO_UNIT_INFO,
    ATTRIBUTE_SERVICE_ENTRIES,
    SERVICES_A_MAD,
    STATUS_NO_IOC,
    IoControllerProfile,
    IoUnitInfo,
    ServiceEntry,
)
from softhca.management.mad import Address, Mad


class ManagedController(Protocol):
    """An I/O controller that the agent speaks for."""

    def profile(self) -> IoControllerProfile:
        """What it is; ``service_entries`` is the number of its `services`."""

    def services(self) -> list[ServiceEntry]:
        """What it offers, 255 entries at most."""


class ManagedUnit(Protocol):
    """An I/O unit that the agent speaks for."""

    def unit_info(self) -> IoUnitInfo:
        """Its slots as they are now."""

    def controller(self, slot: int) -> ManagedController | None:
        """The controller in a slot; None: there is none, or no such slot."""


class DeviceManagementAgent(Agent):
    """Get ClassPortInfo, IOUnitInfo, IOControllerProfile and ServiceEntries of ``unit``.

    It has no diagnostics, traps or notices: those attributes are refused as unknown.
    """

    def __init__(self, unit: ManagedUnit) -> None:
        super().__init__(CLASS_DEV_MGT, frozenset({METHOD_GET, METHOD_SET}))
        self._unit = unit

    def answer(self, request: Mad, source: Address) -> Mad | None:
        """The attribute as it is now; a status for one that there is not, and for every Set."""
        header = request.header
        if header.method != METHOD_GET:
            return request.response(STATUS_BAD_ATTRIBUTE)
        if header.attribute_id == ATTRIBUTE_CLASS_PORT_INFO:
            return request.response(STATUS_OK, ClassPortInfo(class_version=self.class_version))
        if header.attribute_id == ATTRIBUTE_IO_UNIT_INFO:
            return request.response(STATUS_OK, self._unit.unit_info())
        if header.attribute_id == ATTRIBUTE_IO_CONTROLLER_PROFILE:
            return self._profile(request)
        if header.attribute_id == ATTRIBUTE_SERVICE_ENTRIES:
            return self._services(request)
        return request.response(STATUS_BAD_ATTRIBUTE)

    def _slot(self, number: int) -> tuple[int, ManagedController | None]:
        """The status and the controller for a slot's number."""
        if not 1 <= number <= self._unit.unit_info().max_controllers:
            return STATUS_BAD_VALUE, None
        found = self._unit.controller(number)
        return (STATUS_OK if found is not None else STATUS_NO_IOC), found

    def _profile(self, request: Mad) -> Mad:
        status, controller = self._slot(request.header.attribute_modifier)
        return request.response(status, controller.profile() if controller is not None else None)

    def _services(self, request: Mad) -> Mad:
        """Entries ``first`` … ``last`` of a slot, four at most, as the modifier says."""
        modifier = request.header.attribute_modifier
        first, last = modifier & 0xFF, modifier >> 8 & 0xFF
        status, controller = self._slot(modifier >> 16)
        if controller is None:
            return request.response(status)
        services = controller.services()
        if not first <= last < len(services) or last - first >= SERVICES_A_MAD:
            return request.response(STATUS_BAD_VALUE)
        return request.response(STATUS_OK, b"".join(each.encode() for each in services[first : last + 1]))
