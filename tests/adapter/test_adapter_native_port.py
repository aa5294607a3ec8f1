"""A native port's configuration: what is refused, and what a subnet manager may change while it lives."""

import errno

import pytest
from native_network import GUID, NativeNetwork, gid, grh_of, lid, lrh_of, native_pair

from softhca.adapter import paths
from softhca.adapter.config import NATIVE, AdapterConfig, native_gid
from softhca.adapter.port import PORT_ACTIVE, PORT_ARMED, PORT_DOWN, PORT_INIT, Port
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as events
from softhca.testing.ends import QKEY, RC, SEND, UD, WRITE, End, connect, post
from softhca.wire.framing import NATIVE as NATIVE_FRAMING
from softhca.wire.route import Route

OTHER_PREFIX = 0xFEC0_0000_0000_0007
DEFAULT_PREFIX = 0xFE80_0000_0000_0000
GROUP = b"\xff\x12" + bytes(14)


def config(**changes):
    return AdapterConfig(**{"gids": (gid(1),), "framing": NATIVE, "lid": 0x18, "lmc": 3, **changes})


def test_native_gids_are_prefix_and_guid():
    assert native_gid(GUID).hex() == "fe80000000000000" + "02005efffe005300"
    assert native_gid(5, OTHER_PREFIX).hex() == "fec0000000000007" + "0000000000000005"


@pytest.mark.parametrize(
    "wrong",
    [
        {"framing": "ethernet"},
        {"framing": 0},
        {"lid": 0x19},
        {"lid": 0xC000},
        {"lid": 0x10000},
        {"lid": -8},
        {"lmc": 8},
        {"lmc": -1},
        {"sm_lid": 0xC000},
        {"sm_lid": -1},
        {"gids": (bytes(8) + gid(1)[8:],)},
        {"gids": (gid(1)[:8] + bytes(8),)},
        {"gids": (gid(1), native_gid(GUID, OTHER_PREFIX))},
        {"framing": "roce"},
        {"framing": "roce", "lid": 0, "lmc": 0, "sm_lid": 1},
        {"framing": "roce", "lid": 0},
    ],
)
def test_a_configuration_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"LID|LMC|GID|framing"):
        config(**wrong)


@pytest.mark.parametrize(
    "right", [{"lid": 0xBFF8}, {"lid": 0}, {"lid": 1, "lmc": 0}, {"lid": 0x80, "lmc": 7}]
)
def test_lids_to_the_last_unicast_one_are_taken(right):
    assert config(**right).lid == right["lid"]


def test_the_default_framing_is_roce_and_has_no_lids():
    port = Port(AdapterConfig(gids=(gid(1),)))
    assert (port.native, port.lid, port.state) == (False, 0, PORT_ACTIVE)
    with pytest.raises(ValueError, match="RoCE"):
        port.set_info(lid=5)


def test_a_roce_ports_only_lid_is_no_lid():
    port = Port(config(lid=0, lmc=0))
    assert not port.owns_lid(0)
    assert port.state == PORT_INIT


# address vectors


def vector(**changes):
    return {"dlid": 0x30, "is_global": 0, "sl": 3, "src_path_bits": 5, **changes}


@pytest.mark.parametrize(
    "change",
    [
        {"dlid": 0},
        {"dlid": 0xFFFF},
        {"dlid": 0xC000},
        {"dlid": 0xC000, "is_global": 1, "dgid": gid(2)},
        {"is_global": 1, "dgid": GROUP},
        {"is_global": 1, "dgid": bytes(16)},
        {"is_global": 1, "dgid": gid(2)[:15]},
        {"is_global": 1, "dgid": gid(2), "sgid_index": 1},
        {"is_global": 1, "dgid": gid(2), "flow_label": 1 << 20},
        {"sl": 15},
        {"sl": 16},
        {"src_path_bits": 128},
        {"port_num": 2},
    ],
)
def test_an_address_vector_that_leads_nowhere_is_refused(change):
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is checked
        paths.check_vector(vector(**change), Port(config()))
    assert refused.value.errno == errno.EINVAL


def test_a_group_is_for_datagrams_only():
    group = vector(dlid=0xFFFE, is_global=1, dgid=GROUP)
    paths.check_vector(group, Port(config()))
    with pytest.raises(OSError, match="multicast"):
        paths.check_vector(group, Port(config()), connected=True)


def test_a_vector_gives_its_route():
    port = Port(config())
    route = paths.route_of(vector(), port, 1)
    assert (route.framing, route.slid, route.dlid, route.sl, route.vl) == (NATIVE_FRAMING, 0x1D, 0x30, 3, 3)
    assert not route.has_grh
    assert route.peer == b"\x00\x30"
    route = paths.route_of(
        vector(is_global=1, dgid=gid(2), hop_limit=7, traffic_class=9, flow_label=0xABCDE),
        port,
        1,
    )
    assert (route.source, route.destination, route.has_grh) == (gid(1), gid(2), True)
    assert (route.hop_limit, route.traffic_class, route.flow_label) == (7, 9, 0xABCDE)
    assert route.peer == gid(2)


def test_refusals_reach_the_driver():
    world = NativeNetwork()
    end = End(world.add(1))
    with pytest.raises(DriverError) as refused:
        end.device.create_ah(end.pd, {"dlid": 0, "is_global": 0})
    assert refused.value.errno == errno.EINVAL
    qp = end.qp()
    with pytest.raises(DriverError) as refused:
        services.connect(qp, services.Path(GROUP, dlid=0xC001), 5, 0, 0, 0, services.Reliability())
    assert refused.value.errno == errno.EINVAL
    world.close()


# what a subnet manager sets


def test_info_is_all_or_nothing():
    port = Port(config())
    before = port.info()
    for wrong in (
        {"lid": 0x20, "lmc": 8},
        {"lid": 0x21},
        {"lid": 0x20, "sm_lid": 0xC000},
        {"lid": 0x20, "gid_prefix": 0},
        {"lid": 0x20, "gid_prefix": 0xFF << 56},
        {"lid": 0x20, "sm_sl": 16},
        {"lid": 0x20, "subnet_timeout": 32},
        {"lid": 0x20, "state": 5},
        {"lid": 0x20, "state": 0},
        {"lid": 0, "state": PORT_ARMED},
    ):
        with pytest.raises(ValueError, match=r"LID|LMC|prefix|service level|state"):
            port.set_info(**wrong)
        assert port.info() == before, wrong
    assert port.set_info() is False
    assert port.set_info(lid=0x18) is False
    assert port.set_info(lid=0x20, lmc=5, sm_lid=2, sm_sl=1, subnet_timeout=18) is True
    assert (port.lid, port.lmc, port.sm_lid, port.sm_sl, port.subnet_timeout) == (0x20, 5, 2, 1, 18)


def test_the_gids_follow_the_prefix_and_the_default_one_stays_good():
    port = Port(config(gids=(gid(1), gid(8))))
    assert port.set_info(gid_prefix=OTHER_PREFIX)
    assert port.gid_table == (native_gid(GUID + 1, OTHER_PREFIX), native_gid(GUID + 8, OTHER_PREFIX))
    assert port.gids == {*port.gid_table, gid(1), gid(8)}
    assert port.gid_prefix == OTHER_PREFIX


def test_the_first_lid_makes_a_port_active():
    port = Port(config(lid=0, lmc=0))
    port.set_info(sm_lid=1)
    assert port.state == PORT_INIT
    port.set_info(lid=5)
    assert port.state == PORT_ACTIVE
    port.set_info(lid=5, state=PORT_ARMED)
    assert port.state == PORT_ARMED
    port.set_info(lid=6)
    assert port.state == PORT_ARMED
    port.set_info(lid=0)
    assert port.state == PORT_INIT


def told(device):
    found = []
    while (event := device.next_event(0)) is not None:
        found.append(event)
    return found


def test_a_port_without_a_lid_sends_nothing_until_it_gets_one():
    world = NativeNetwork()
    left, right = End(world.add(1, lid=0)), End(world.add(2))
    qp, right_qp = left.qp(), right.qp()
    connect((left, qp), (right, right_qp), back={"dlid": lid(1)})
    assert left.device.query_port(1)["state"] == PORT_INIT
    post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
    world.run(limit_ns=1)
    assert world.packets == []
    assert left.device.query_counters()["packets_discarded"] == 1
    assert left.device.query_counters()["packets_sent"] == 0
    left.node.adapter.set_port_info(1, lid=lid(1), sm_lid=7)
    assert left.poll(1)[0].status == 0
    port = left.device.query_port(1)
    assert (port["lid"], port["sm_lid"], port["state"]) == (lid(1), 7, PORT_ACTIVE)
    assert told(left.device) == [
        (events.EVENT_LID_CHANGE, 1),
        (events.EVENT_SM_CHANGE, 1),
        (events.EVENT_PORT_ACTIVE, 1),
    ]
    left.node.adapter.set_port_info(1, state=PORT_DOWN)
    assert told(left.device) == [(events.EVENT_PORT_ERR, 1)]
    left.node.adapter.set_port_info(1, state=PORT_DOWN)
    assert told(left.device) == []
    world.close()


@pytest.mark.parametrize("grh", [False, True])
def test_connections_leave_from_the_new_lid_and_gid(grh):
    world, left, qp, right, _right_qp = native_pair(RC, grh, there={"src_path_bits": 1})
    left.node.adapter.set_port_info(1, lid=0x40, lmc=1, gid_prefix=OTHER_PREFIX)
    assert left.device.query_gid(1, 0) == native_gid(GUID + 1, OTHER_PREFIX)
    assert told(left.device) == [(events.EVENT_LID_CHANGE, 1), (events.EVENT_GID_CHANGE, 1)]
    taken = []
    world.tamper = lambda sent: taken.append(sent.data)
    post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
    world.run(lambda: bool(taken))
    packet = world.decoded[0]
    assert lrh_of(packet).slid == 0x41
    if grh:
        assert grh_of(packet).sgid == native_gid(GUID + 1, OTHER_PREFIX)
    world.close()


def test_address_handles_too():
    world = NativeNetwork()
    left = End(world.add(1))
    qp = left.qp(UD)
    services.start_datagrams(qp, QKEY)
    ah = left.device.create_ah(left.pd, {"dlid": lid(2), "is_global": 0, "src_path_bits": 3})
    left.node.adapter.set_port_info(1, lid=0x40, lmc=2)
    post(qp, SEND, [left.sge(0, 4)], ah=ah, qpn=9, qkey=QKEY)
    assert left.poll(1)[0].status == 0
    assert lrh_of(world.decoded[0]).slid == 0x43
    world.close()


def test_a_wrong_setting_changes_and_tells_nothing():
    world = NativeNetwork()
    left = End(world.add(1))
    with pytest.raises(ValueError, match="LID"):
        left.node.adapter.set_port_info(1, lid=0xC000)
    assert told(left.device) == []
    assert left.device.query_port(1)["lid"] == lid(1)
    world.close()


def test_a_route_to_the_permissive_lid_is_not_the_ports_own():
    port = Port(config())
    assert port.is_own(Route(NATIVE_FRAMING, gid(1), gid(1), dlid=0x1F, has_grh=True))
    for other in (0x17, 0x20, 0xFFFF, 0xC000):
        assert not port.is_own(Route(NATIVE_FRAMING, gid(1), gid(1), dlid=other, has_grh=True))
