"""Device management: what an I/O unit's agent answers, and what a host reads in it."""

from __future__ import annotations

import pytest
from management_node import PEER, request

from softhca.management import constants as c
from softhca.management import device_attributes as dm
from softhca.management.attributes import ClassPortInfo
from softhca.management.device_agent import DeviceManagementAgent, ManagedController
from softhca.management.device_attributes import IoControllerProfile, IoUnitInfo, ServiceEntry
from softhca.management.mad import Mad


class Controller:
    def profile(self) -> IoControllerProfile:
        return IoControllerProfile(guid=0x77, service_entries=6, id_string=b"six services".ljust(64, b"\0"))

    def services(self) -> list[ServiceEntry]:
        return [ServiceEntry.named(f"service {number}", 100 + number) for number in range(6)]


class Unit:
    """Three slots; a controller in the second."""

    def unit_info(self) -> IoUnitInfo:
        return IoUnitInfo.of(5, [False, True, False])

    def controller(self, slot: int) -> ManagedController | None:
        assert 1 <= slot <= 3
        return Controller() if slot == 2 else None


def ask(attribute: int, modifier: int = 0, method: int = c.METHOD_GET) -> Mad:
    mad = request(attribute, method, c.CLASS_DEV_MGT, modifier)
    answer = DeviceManagementAgent(Unit()).answer(mad, PEER)
    assert answer is not None
    assert answer.header.method == c.METHOD_GET_RESPONSE
    assert answer.header.transaction_id == mad.header.transaction_id
    return answer


@pytest.mark.parametrize(
    ("attribute", "modifier", "method", "status"),
    [
        (c.ATTRIBUTE_CLASS_PORT_INFO, 0, c.METHOD_GET, c.STATUS_OK),
        (c.ATTRIBUTE_CLASS_PORT_INFO, 0, c.METHOD_SET, c.STATUS_BAD_ATTRIBUTE),
        (c.ATTRIBUTE_NOTICE, 0, c.METHOD_GET, c.STATUS_BAD_ATTRIBUTE),
        (dm.ATTRIBUTE_IO_UNIT_INFO, 0, c.METHOD_GET, c.STATUS_OK),
        (dm.ATTRIBUTE_IO_UNIT_INFO, 0, c.METHOD_SET, c.STATUS_BAD_ATTRIBUTE),
        (dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 0, c.METHOD_GET, c.STATUS_BAD_VALUE),
        (dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 1, c.METHOD_GET, dm.STATUS_NO_IOC),
        (dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 2, c.METHOD_GET, c.STATUS_OK),
        (dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 3, c.METHOD_GET, dm.STATUS_NO_IOC),
        (dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 4, c.METHOD_GET, c.STATUS_BAD_VALUE),
        (dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 0xFFFFFFFF, c.METHOD_GET, c.STATUS_BAD_VALUE),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(2, 0, 3), c.METHOD_GET, c.STATUS_OK),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(2, 5, 5), c.METHOD_GET, c.STATUS_OK),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(2, 0, 4), c.METHOD_GET, c.STATUS_BAD_VALUE),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(2, 4, 6), c.METHOD_GET, c.STATUS_BAD_VALUE),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(2, 3, 2), c.METHOD_GET, c.STATUS_BAD_VALUE),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(1, 0, 0), c.METHOD_GET, dm.STATUS_NO_IOC),
        (dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(9, 0, 0), c.METHOD_GET, c.STATUS_BAD_VALUE),
    ],
)
def test_an_agent_of_device_management_answers_each_attribute(attribute, modifier, method, status) -> None:
    assert ask(attribute, modifier, method).header.status == status


def test_what_a_unit_tells() -> None:
    assert ClassPortInfo.decode(ask(c.ATTRIBUTE_CLASS_PORT_INFO).data).class_version == 1
    info = IoUnitInfo.decode(ask(dm.ATTRIBUTE_IO_UNIT_INFO).data)
    assert (info.change_id, info.max_controllers) == (5, 3)
    found = [info.slot(number) for number in range(6)]
    absent, empty, present = dm.SLOT_ABSENT, dm.SLOT_EMPTY, dm.SLOT_PRESENT
    assert found == [absent, empty, present, empty, absent, absent]
    assert info.controller_list[:3] == bytes([empty << 4 | present, empty << 4 | absent, 0xFF])
    profile = IoControllerProfile.decode(ask(dm.ATTRIBUTE_IO_CONTROLLER_PROFILE, 2).data)
    assert (profile.guid, profile.service_entries, profile.name) == (0x77, 6, "six services")
    answer = ask(dm.ATTRIBUTE_SERVICE_ENTRIES, dm.service_modifier(2, 4, 5))
    entries = dm.service_entries(answer.data, 2)
    assert [(each.name, each.service_id) for each in entries] == [("service 4", 104), ("service 5", 105)]


def test_a_unit_has_no_more_slots_than_the_attribute() -> None:
    assert IoUnitInfo.of(0, [True] * 255).slot(255) == dm.SLOT_PRESENT
    with pytest.raises(ValueError, match="255"):
        IoUnitInfo.of(0, [True] * 256)


def test_names_are_ascii_and_short() -> None:
    assert ServiceEntry.named("x" * 40, 1).name == "x" * 40
    for name in ("", "x" * 41, "ü"):
        with pytest.raises(ValueError, match=r"bytes|ascii"):
            ServiceEntry.named(name, 1)
    assert dm.text_of(b"a\x1b\xffz\0hidden") == "a??z"
