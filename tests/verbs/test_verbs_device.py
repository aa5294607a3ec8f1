"""Devices: the list, opening, what a device says of itself, events, and the errors of all that."""

import errno

import pytest
from verbs_fake_driver import FakeDriver, FakeRegistry

from softhca.driver.errors import DriverError
from softhca.verbs import device as d
from softhca.verbs.device import AsyncEvent, Context, QueryDeviceExInput, get_device_list
from softhca.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError


def test_the_list_names_devices_as_bytes_and_opens_none(registry: FakeRegistry) -> None:
    devices = get_device_list()
    assert [each.name for each in devices] == [b"fake0", b"fake1"]
    assert [each.index for each in devices] == [0, 1]
    assert {each.node_type for each in devices} == {1}
    assert registry.drivers == []


def test_a_guid_is_read_by_opening_for_a_moment(registry: FakeRegistry) -> None:
    entry = get_device_list()[1]
    assert entry.guid == 0x0200_00FF_7F00_0002
    assert [driver.name for driver in registry.drivers] == ["fake1"]
    assert not registry.drivers[0].alive
    assert "fake1" in str(entry)
    assert "20000ff7f000002" in str(entry)
    assert len(registry.drivers) == 1


def test_without_a_name_the_first_device_is_opened(registry: FakeRegistry) -> None:
    with Context() as context:
        assert context.name == "fake0"
        assert registry.drivers[0].name == "fake0"


def test_an_unknown_name_is_refused(registry: FakeRegistry) -> None:
    with pytest.raises(PyverbsRDMAError, match="nothing0") as caught:
        Context(name="nothing0")
    assert caught.value.error_code == errno.ENODEV


def test_no_device_at_all_is_refused(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "names", list)
    with pytest.raises(PyverbsRDMAError) as caught:
        Context()
    assert caught.value.error_code == errno.ENODEV


def test_a_driver_error_keeps_its_errno_and_its_reason(registry: FakeRegistry) -> None:
    registry.refusal = DriverError(errno.EADDRINUSE, "port 4791 is taken")
    with pytest.raises(PyverbsRDMAError, match="port 4791 is taken") as caught:
        Context(name="fake0")
    assert caught.value.error_code == errno.EADDRINUSE
    assert isinstance(caught.value, PyverbsError)
    assert isinstance(caught.value.__cause__, DriverError)


def test_errors_spell_the_errno_out() -> None:
    error = PyverbsRDMAError("Failed", errno.ENOMEM)
    assert str(error) == "Failed. Errno: 12, Cannot allocate memory"
    assert PyverbsRDMAError("Failed").error_code == -1
    assert str(PyverbsUserError("wrong")) == "wrong"


def test_device_attributes_have_pyverbs_names(context: Context) -> None:
    attr = context.query_device()
    assert (attr.fw_version, attr.max_qp, attr.atomic_caps, attr.max_raw_ipv6_qps, attr.max_mw) == (
        "1.2",
        7,
        1,
        3,
        0,
    )
    assert d.guid_format(attr.node_guid) == "0200:00ff:7f00:0002"
    assert attr.sys_image_guid == attr.node_guid
    assert "max qp" in str(attr)


def test_extended_attributes_hold_the_plain_ones_and_say_0_for_what_there_is_not(context: Context) -> None:
    attr = context.query_device_ex(QueryDeviceExInput())
    assert attr.orig_attr.max_qp == 7
    assert attr.device_cap_flags_ex == 0x20
    assert attr.phys_port_cnt_ex == 1
    assert (attr.odp_caps.general_caps, attr.tso_caps.max_tso, attr.tm_caps.max_num_tags) == (0, 0, 0)
    with pytest.raises(PyverbsRDMAError) as caught:
        context.query_device_ex(QueryDeviceExInput(1))
    assert caught.value.error_code == errno.EINVAL


def test_port_attributes_and_their_text(context: Context) -> None:
    attr = context.query_port(1)
    assert (attr.state, attr.active_mtu, attr.lid) == (4, 3, 0)
    assert "1024 (3)" in str(attr)
    assert "Ethernet" in str(attr)
    with pytest.raises(PyverbsRDMAError) as caught:
        context.query_port(2)
    assert caught.value.error_code == errno.EINVAL


def test_gids(context: Context) -> None:
    assert str(context.query_gid(1, 1)) == "0000:0000:0000:0000:0000:ffff:7f00:0002"
    assert context.query_gid_type(1, 0) == 1
    entry = context.query_gid_ex(1, 0)
    assert entry.gid_str() == "0000:0000:0000:0000:0000:ffff:7f00:0003"
    assert (entry.gid_index, entry.port_num, entry.gid_type) == (0, 1, 2)
    assert "RoCEv2" in str(entry)


def test_the_gid_table_leaves_empty_entries_out_and_wants_room_for_all(context: Context) -> None:
    assert [entry.gid_index for entry in context.query_gid_table(10)] == [0, 1]
    for max_entries, flags in ((1, 0), (0, 0), (10, 1)):
        with pytest.raises(PyverbsRDMAError) as caught:
            context.query_gid_table(max_entries, flags)
        assert caught.value.error_code == -errno.EINVAL
    with pytest.raises(OverflowError):
        context.query_gid_table(-1)


def test_an_empty_entry_of_the_gid_table_has_no_data(context: Context) -> None:
    assert not any(context.query_gid(1, 2).raw)
    with pytest.raises(PyverbsRDMAError) as caught:
        context.query_gid_ex(1, 2)
    assert caught.value.error_code == errno.ENODATA


def test_pkeys_are_in_network_order(context: Context) -> None:
    assert context.query_pkey(1, 0) == 0x0180
    assert context.get_pkey_index(1, 0x0180) == 0
    with pytest.raises(PyverbsRDMAError) as caught:
        context.get_pkey_index(1, 0x0181)
    assert caught.value.error_code == errno.ENOENT


def test_counters_and_progress_reach_the_device(context: Context, driver: FakeDriver) -> None:
    assert context.query_counters(1, 5) == {"port": 1, "qp": 5}
    context.progress()
    assert driver.progressed == 1
    assert context.num_comp_vectors == 1


def test_events_have_type_and_element_and_are_acknowledged_once(context: Context, driver: FakeDriver) -> None:
    driver.events.append((15, 42))
    event = context.get_async_event()
    assert (event.event_type, event.element) == (15, 42)
    assert driver.calls[-1] == ("next_event", None)
    assert "IBV_EVENT_SRQ_LIMIT_REACHED" in str(event)
    event.ack()
    with pytest.raises(PyverbsUserError):
        event.ack()


def test_waiting_for_an_event_ends_in_time(context: Context, driver: FakeDriver) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        context.get_async_event(timeout_s=0.5)
    assert caught.value.error_code == errno.ETIMEDOUT
    assert driver.calls[-1] == ("next_event", 0.5)


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.query_device(),
        lambda c: c.query_port(1),
        lambda c: c.query_gid(1, 0),
        lambda c: c.progress(),
        lambda c: c.get_async_event(),
        lambda c: c.query_counters(),
        lambda c: c.query_pkey(1, 0),
        lambda c: c.driver,
    ],
)
def test_a_closed_context_refuses_use(registry: FakeRegistry, use) -> None:
    context = Context(name="fake0")
    context.close()
    with pytest.raises(PyverbsUserError, match="closed"):
        use(context)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (d.translate_mtu(5), "4096 (5)"),
        (d.translate_mtu(6), "Invalid MTU (6)"),
        (d.translate_link_layer(1), "InfiniBand"),
        (d.translate_link_layer(3), "Invalid link layer (3)"),
        (d.phys_state_to_str(5), "Link up (5)"),
        (d.phys_state_to_str(0), "Invalid physical state"),
        (d.width_to_str(2), "4X (2)"),
        (d.width_to_str(3), "Invalid width"),
        (d.speed_to_str(32, 0), "25.0 Gbps (32)"),
        (d.speed_to_str(1, 256), "200.0 Gbps (256)"),
        (d.speed_to_str(3), "Invalid speed"),
        (d.port_state_to_str(4), "Active (4)"),
        (d.port_state_to_str(9), "Invalid state (9)"),
        (d.translate_gid_type(1), "RoCEv1"),
        (d.translate_node_type(1), "CA"),
        (d.translate_transport_type(0), "IB"),
        (d.translate_event_type(0), "IBV_EVENT_CQ_ERR"),
        (d.translate_event_type(99), "Unknown event_type (99)"),
        (d.guid_to_hex(0xAB), "ab"),
        (d.translate_device_caps(1 << 13), "\n  IBV_DEVICE_SRQ_RESIZE\n  "),
        (d.translate_port_cap_flags(2), "\n  IBV_PORT_SM\n  "),
    ],
)
def test_numbers_as_text(text: str, expected: str) -> None:
    assert text == expected


def test_an_event_can_be_made_by_hand() -> None:
    assert AsyncEvent(3).event_type == 3
