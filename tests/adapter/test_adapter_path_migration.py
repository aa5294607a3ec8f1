"""Automatic path migration: two adapters with two ports each, whose connection moves when the first fails."""

import errno

import pytest
from migration_scene import INTERVAL_NS, RETRIES, TIMEOUT, Scene

from softhca.driver.errors import DriverError
from softhca.queues.control_fields import (
    EVENT_PATH_MIG,
    EVENT_PATH_MIG_ERR,
    EVENT_PORT_ACTIVE,
    EVENT_PORT_ERR,
)
from softhca.testing.ends import SEND, UC, post
from softhca.transport.migration import (
    ARMED,
    COMMANDS,
    INPUTS,
    MIGRATED,
    REARMED,
    STATES,
    TABLE,
)
from softhca.transport.states import RESET


@pytest.fixture(params=["ipv4", "ipv6", "native"])
def scene(request):
    return Scene(link=request.param)


def test_idle_ends_arm_each_other_and_say_so_in_every_packet(scene):
    sent = scene.network.record("sent")
    assert scene.send(0) == [1]
    assert {each.bth.migreq for each in sent} == {1}
    scene.rearm(0)
    assert scene.states == [REARMED, MIGRATED]
    scene.rearm(1)
    assert scene.states == [ARMED, ARMED]
    del sent[:]
    assert scene.send(0) == scene.send(1) == [1]
    assert {each.bth.migreq for each in sent} == {0}
    assert scene.ports == [1, 1]
    assert EVENT_PATH_MIG not in scene.events(0) + scene.events(1)


@pytest.mark.parametrize("side", [0, 1])
def test_when_no_retry_is_left_both_ends_go_along_the_alternate_path(scene, side):
    scene.rearm()
    scene.cut(1)
    before = scene.network.now
    assert scene.send(side, 3) == [1, 2, 3]
    assert scene.network.now - before < (RETRIES + 2) * INTERVAL_NS
    assert scene.states == [MIGRATED, MIGRATED]
    assert scene.ports == [2, 2]
    for each in (0, 1):
        assert scene.events(each).count(EVENT_PATH_MIG) == 1
        found = scene.qps[each].query()
        assert (found["port_num"], found["path_mig_state"]) == (2, MIGRATED)
    assert scene.send(1 - side, 3) == [1, 2, 3]


def test_the_alternate_path_has_all_retries(scene):
    """What goes along it for the first time may be lost as often as any other."""
    scene.rearm()
    scene.cut(1)
    losses = iter(range(RETRIES))
    through = scene.network.tamper
    scene.network.tamper = lambda sent: (
        None if scene.ports[0] == 2 and next(losses, None) is not None else through(sent)
    )
    assert scene.send(0) == [1]
    assert next(losses, None) is None
    assert scene.states == [MIGRATED, MIGRATED]


def test_a_port_that_fails_is_left_at_once_and_the_peer_follows(scene):
    scene.rearm()
    scene.cut(1)
    before = scene.network.now
    scene.ends[0].node.adapter.set_link(1, False)
    scene.network.run()
    assert scene.ports == [2, 2]
    assert scene.network.now - before < INTERVAL_NS
    assert scene.send(1, 2) == [1, 2]
    assert EVENT_PORT_ERR in scene.events(0)
    scene.ends[0].node.adapter.set_link(1, True)
    assert EVENT_PORT_ACTIVE in scene.events(0)
    scene.lost.clear()
    scene.rearm(port=1)
    assert scene.states == [ARMED, ARMED]
    scene.cut(2)
    assert scene.send(0, 2) == [1, 2]
    assert scene.ports == [1, 1]


def test_what_was_under_way_goes_again_at_once(scene):
    scene.rearm()
    scene.cut(1)
    scene.qps[1].post_recv(1, [scene.ends[1].sge(1000, 10)])
    post(scene.qps[0], SEND, [scene.ends[0].sge(0, 10)])
    scene.network.elapse(1000)
    before = scene.network.now
    scene.ends[0].node.adapter.set_link(1, False)
    assert scene.ends[0].poll(1)[0].status == 0
    assert scene.network.now - before < INTERVAL_NS // 4


def test_a_command_migrates_and_the_former_path_is_forgotten(scene):
    scene.rearm()
    scene.qps[1].modify({"path_mig_state": MIGRATED})
    scene.network.run()
    assert scene.ports == [2, 2]
    assert scene.context(0).alternate is None
    with pytest.raises(DriverError) as refused:
        scene.qps[0].modify({"path_mig_state": REARMED})
    assert refused.value.errno == errno.EINVAL
    assert scene.send(0) == [1]


def test_unreliable_connections_arm_by_their_traffic_and_migrate_by_command():
    scene = Scene(UC)
    scene.rearm()
    assert scene.states == [REARMED, REARMED]
    assert scene.send(0) == [1]
    assert scene.send(1) == [1]
    assert scene.states == [ARMED, ARMED]
    scene.qps[0].modify({"path_mig_state": MIGRATED})
    assert scene.send(0) == [1]
    assert scene.ports == [2, 2]


def test_without_an_alternate_path_a_failure_ends_the_connection(scene):
    scene.rearm(0)  # the peer has not
    scene.cut(1)
    post(scene.qps[0], SEND, [scene.ends[0].sge(0, 10)])
    assert scene.ends[0].poll(1)[0].status == 12
    assert scene.ports == [1, 1]


def test_an_alternate_port_that_is_down_is_not_taken_and_told(scene):
    scene.rearm()
    scene.ends[0].node.adapter.set_link(2, False)
    scene.cut(1)
    post(scene.qps[0], SEND, [scene.ends[0].sge(0, 10)])
    assert scene.ends[0].poll(1)[0].status == 12
    assert EVENT_PATH_MIG_ERR in scene.events(0)


@pytest.mark.parametrize("link", ["ipv4", "ipv6"])
def test_who_is_not_armed_takes_nothing_by_another_port_or_from_elsewhere(link):
    scene = Scene(link=link)
    packets = scene.network.record("sent")
    assert scene.send(1) == [1]
    data = packets[0].data
    target, other = (end.node for end in scene.ends)
    port = target.adapter.ports[1]

    def arrives(source):
        before = port.counters.as_dict()
        scene.network.inject(target, data, source, destination=port.gid_table[0], port_number=2)
        after = port.counters.as_dict()
        return [name for name in after if name.startswith("drops_") and after[name] > before[name]]

    by_second, by_first = (other.adapter.ports[number].gid_table[0] for number in (1, 0))
    assert arrives(by_second) == ["drops_unknown_qp"]
    scene.rearm(0)
    assert arrives(by_second) == ["drops_unknown_qp"]
    scene.rearm(1)
    assert arrives(by_second) == ["drops_icrc"]  # its own checks come next
    assert arrives(by_first) == ["drops_source"]
    assert scene.states == [ARMED, ARMED]


@pytest.mark.parametrize(("attributes", "said"), [
    ({"path_mig_state": REARMED}, "no alternate path"),
    ({"path_mig_state": ARMED}, "ARMED follows REARM"),
    ({"alt": 2, "alt_port_num": 3}, "alt_port_num = 3: "),
    ({"alt": 2, "alt_port_num": 0}, "alt_port_num = 0: "),
    ({"alt": 2, "alt_port_num": 2, "alt_pkey_index": 9}, "alt_pkey_index = 9"),
    ({"alt": 2, "alt_port_num": 2, "alt_timeout": 32}, "alt_timeout = 32"),
])  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(attributes, said):
    scene = Scene()
    if "alt" in attributes:
        attributes = {**attributes, "alt_ah_attr": scene.path(0, attributes["alt"]).vector()}
        del attributes["alt"]
    with pytest.raises(DriverError, match=said) as refused:
        scene.qps[0].modify(attributes)
    assert refused.value.errno == errno.EINVAL
    assert scene.states == [MIGRATED, MIGRATED]
    assert scene.context(0).alternate is None


@pytest.mark.parametrize(("link", "changes", "said"), [
    ("ipv4", {"sl": 16}, "sl, flow_label: "), ("ipv4", {"dgid": bytes(16)}, "dgid"),
    ("ipv4", {"port_num": 1}, "port_num = 1: the path begins"), ("native", {"dlid": 0xC001}, "dlid"),
])  # fmt: skip
def test_an_alternate_path_must_lead_somewhere(link, changes, said):
    scene = Scene(link=link)
    vector = {**scene.path(0, 2).vector(), **changes}
    with pytest.raises(DriverError, match=said) as refused:
        scene.qps[0].modify({"alt_ah_attr": vector, "alt_port_num": 2, "alt_timeout": TIMEOUT})
    assert refused.value.errno == errno.EINVAL
    assert scene.context(0).alternate is None


def test_a_connection_does_not_lead_to_a_native_group():
    scene = Scene(link="native")
    qp, vector = scene.qps[0], {**scene.path(0, 1).vector(), "dlid": 0xC001}
    qp.modify({"qp_state": RESET})
    qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0})
    with pytest.raises(DriverError, match="dlid"):
        qp.modify({
            "qp_state": 2, "ah_attr": vector, "path_mtu": 3, "dest_qp_num": 1, "rq_psn": 0,
            "max_dest_rd_atomic": 1, "min_rnr_timer": 1,
        })  # fmt: skip


def test_steps_that_a_state_does_not_have_are_refused():
    scene = Scene()
    scene.rearm(0)
    another = {"alt_ah_attr": scene.path(0, 1).vector(), "alt_port_num": 1}
    for attributes in ({"path_mig_state": MIGRATED}, another):
        with pytest.raises(DriverError) as refused:
            scene.qps[0].modify(attributes)
        assert refused.value.errno == errno.EINVAL
    assert scene.states == [REARMED, MIGRATED]
    scene.qps[0].modify({"qp_state": RESET})
    assert scene.states == [MIGRATED, MIGRATED]
    assert scene.context(0).alternate is None


def test_what_was_loaded_can_be_asked_for():
    scene = Scene()
    scene.rearm(0)
    found = scene.qps[0].query()
    assert (found["alt_port_num"], found["alt_timeout"], found["path_mig_state"]) == (2, TIMEOUT, REARMED)
    assert found["alt_ah_attr"]["dgid"] == scene.path(0, 2).dgid


@pytest.mark.parametrize("state", range(3), ids=STATES)
@pytest.mark.parametrize("event", INPUTS)
def test_every_cell_of_the_table(state, event):
    scene = Scene()
    if state == REARMED:
        scene.rearm(0)
    elif state == ARMED:
        scene.rearm()
    else:
        scene.qps[0].modify({"alt_ah_attr": scene.path(0, 2).vector(), "alt_port_num": 2})
    context = scene.context(0)
    assert context.migration == state
    moved = context.migrate(event, scene.network.now)
    expected, done = TABLE.get((state, event), (state, ""))
    assert context.migration == expected
    assert moved == (context.flow.port_number == 2) == ("event PATH_MIG" in done)
    assert scene.events(0).count(EVENT_PATH_MIG) == moved
    assert set(COMMANDS) < set(INPUTS)
