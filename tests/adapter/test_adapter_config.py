"""Configuration, addresses, numbers and attributes."""

import errno

import pytest

from softhca.adapter import attributes, paths
from softhca.adapter import config as config_module
from softhca.adapter.config import GID_ENTRIES, NATIVE, AdapterConfig, PortConfig, native_gid
from softhca.adapter.port import Port, pkeys_match
from softhca.adapter.resources import Kind, Numbers, ResourceTable, limits_of
from softhca.queues import qp_attributes
from softhca.queues.codec import encode_fields
from softhca.queues.control_fields import DEVICE_ATTRIBUTES, PORT_ATTRIBUTES, QP_ATTRIBUTES
from softhca.testing.addressing import gid
from softhca.testing.ends import End, connect
from softhca.testing.network import Network
from softhca.wire.framing import ROCE_V4, ROCE_V6

GID = gid(1)
GID6 = bytes.fromhex("20010db8000000000000000000000001")
VECTOR = {
    "dgid": gid(9),
    "sgid_index": 0,
    "sl": 3,
    "flow_label": 0,
    "traffic_class": 8,
    "hop_limit": 0,
    "is_global": 1,
    "port_num": 1,
}


@pytest.mark.parametrize(
    "change",
    [
        {"gids": ()},
        {"gids": (b"short",)},
        {"gids": (bytes(16),)},
        {"gids": (GID, GID)},
        {"gids": (b"\xff\x02" + bytes(14),)},
        {"gids": tuple(gid(i) for i in range(1, 18))},
        {"pkeys": ()},
        {"pkeys": (0x8000,)},
        {"pkeys": (0x10000,)},
        {"active_mtu": 0},
        {"active_mtu": 6},
        {"max_qp": 0},
        {"max_qp": 1 << 24},
        {"max_sge": 2000},
        {"max_sources": -1},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(change):
    with pytest.raises(ValueError, match=r".+"):
        AdapterConfig(**{"gids": (GID,), **change})


def test_limits_are_the_promised_ones():
    config = AdapterConfig(gids=(GID,))
    assert (config.max_qp, config.max_qp_wr, config.max_sge) == (16_384, 32_768, 256)


def test_the_guid_follows_from_the_first_gid_and_is_never_zero():
    assert attributes.guid_of(GID) == 0x0200_00FF_C000_0201
    assert attributes.guid_of(GID6) == 0x0200_0000_0000_0001
    assert attributes.guid_of(bytes(range(0xF0, 0x100))) == 0xFAF9_FAFB_FCFD_FEFF
    assert attributes.guid_of(bytes.fromhex("fe80") + bytes(14)) == 0x0200_0000_0000_0000
    device = attributes.device_attributes(AdapterConfig(gids=(GID,)))
    assert device["node_guid"] == device["sys_image_guid"] == attributes.guid_of(GID)


def test_attributes_have_a_field_each_in_the_replies():
    config = AdapterConfig(gids=(GID,), active_mtu=5)
    device = {**attributes.device_attributes(config), **attributes.odp_attributes(config.profile, True)}
    encode_fields(DEVICE_ATTRIBUTES, device)
    encode_fields(PORT_ATTRIBUTES, attributes.port_attributes(Port(config), 0, 0))
    assert device.keys() == {name for name, _ in DEVICE_ATTRIBUTES}
    assert attributes.port_attributes(Port(config), 0, 0).keys() == {name for name, _ in PORT_ATTRIBUTES}


def test_the_port_is_an_active_ethernet_port():
    config = AdapterConfig(gids=(GID,), active_mtu=3)
    port = attributes.port_attributes(Port(config), bad_pkeys=5, bad_qkeys=6)
    expected = {
        "state": 4,
        "max_mtu": 5,
        "active_mtu": 3,
        "link_layer": 2,
        "phys_state": 5,
        "lid": 0,
        "max_msg_sz": 1 << 31,
        "bad_pkey_cntr": 5,
        "qkey_viol_cntr": 6,
    }
    assert {name: port[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "match"),
    [
        (0xFFFF, 0xFFFF, True),
        (0xFFFF, 0x7FFF, True),
        (0x7FFF, 0xFFFF, True),
        (0x7FFF, 0x7FFF, False),
        (0x8001, 0x8002, False),
        (0x8000, 0x8000, False),
        (0, 0x8000, False),
        (0x8001, 0x0001, True),
    ],
)
def test_pkeys_match_when_the_partition_is_one_and_a_member_is_full(ours, theirs, match):
    assert bool(pkeys_match(ours, theirs)) is match


# paths


def port_of(*gids):
    return Port(AdapterConfig(gids=gids))


@pytest.mark.parametrize(("gids", "entries", "table"), [
    ((GID,), 1, (GID,)),
    ((GID,), 4, (GID,) * 4),
    ((GID, GID6), 1, (GID, GID6)),
    ((GID, GID6), 5, (GID, GID6, GID, GID6, GID)),
])  # fmt: skip
def test_a_roce_ports_gids_fill_its_entries(gids, entries, table):
    port = Port(AdapterConfig(gids=gids, gid_entries=entries))
    assert port.gid_table == table
    assert port.gids == set(gids)
    assert len(Port(AdapterConfig(gids=(GID,))).gid_table) == GID_ENTRIES
    for index in range(len(table)):
        vector = {**VECTOR, "dgid": table[index][:-1] + b"\x77", "sgid_index": index}
        assert paths.route_of(vector, port, 5).source == table[index]
    with pytest.raises(OSError, match="there is no such GID"):
        paths.check_vector({**vector, "sgid_index": len(table)}, port)


def test_a_native_port_has_each_gid_once():
    port = Port(AdapterConfig(gids=(native_gid(5), native_gid(6)), framing=NATIVE, lid=4, gid_entries=9))
    assert port.gid_table == (native_gid(5), native_gid(6))


@pytest.mark.parametrize("entries", [0, 17])
def test_a_table_has_room_for_its_entries(entries):
    with pytest.raises(ValueError, match=f"gid_entries = {entries}: expected 1…16"):
        AdapterConfig(gids=(GID,), gid_entries=entries)


def test_an_ipv4_mapped_destination_is_framed_as_ipv4_and_another_as_ipv6():
    port = port_of(GID, GID6)
    route = paths.route_of(VECTOR, port, 5)
    assert (route.framing, route.source, route.destination) == (ROCE_V4, GID, gid(9))
    assert (route.traffic_class, route.hop_limit) == (8, 64)
    vector = {**VECTOR, "dgid": GID6[:-1] + b"\x05", "sgid_index": 1, "hop_limit": 9, "flow_label": 77}
    route = paths.route_of(vector, port, 5)
    assert (route.framing, route.source, route.hop_limit, route.flow_label) == (ROCE_V6, GID6, 9, 77)


def test_the_source_port_is_the_links_choice_by_flow_label_or_entropy():
    asked = []

    def choose(entropy, destination, source):
        asked.append((entropy, destination, source))
        return 0xC123

    chooses = port_of(GID)
    chooses.source_port_for = choose
    assert paths.route_of(VECTOR, chooses, 5).source_port == 0xC123
    paths.route_of({**VECTOR, "flow_label": 99}, chooses, 5)
    # who gives a flow label wants a flow of its own; others may share one with all that go the same way
    assert asked == [(5, VECTOR["dgid"], GID), (99, None, GID)]


@pytest.mark.parametrize(("asked", "used"), [(0, 64), (1, 64), (2, 2), (9, 9), (255, 255)])
def test_the_hop_limit_is_what_the_vector_says_or_the_adapters(asked, used):
    # who says 1 has not thought of it: libibverbs' own programs do, whatever the way
    route = paths.route_of({**VECTOR, "hop_limit": asked}, port_of(GID), 5)
    assert route.hop_limit == used
    group = {**VECTOR, "hop_limit": asked, "dgid": GID[:12] + b"\xe0\0\0\1"}
    route = paths.route_of(group, port_of(GID), 5)
    assert route.hop_limit == max(asked, 1)


def test_what_a_native_vector_leaves_out_is_0_and_it_has_no_grh():
    port = Port(AdapterConfig(gids=(native_gid(5),), framing=NATIVE, lid=4))
    route = paths.route_of({"dlid": 9, "port_num": 1}, port, 7)
    assert (route.slid, route.dlid, route.sl, route.has_grh) == (4, 9, 0, False)
    asked = {"dlid": 9, "is_global": 1, "dgid": native_gid(6)}
    for limit, more in ((0, {}), (1, {"hop_limit": 1})):
        route = paths.route_of({**asked, **more}, port, 7)
        assert (route.has_grh, route.hop_limit, route.destination) == (True, limit, native_gid(6))


def test_default_source_ports_are_dynamic_ones():
    assert all(0xC000 <= paths.default_source_port(n) <= 0xFFFF for n in (0, 1, 0x3FFF, 0x4000, 1 << 40))


@pytest.mark.parametrize(
    "change",
    [
        {"dgid": bytes(16)},
        {"dgid": GID6},
        {"sgid_index": 4},
        {"sl": 16},
        {"flow_label": 1 << 20},
        {"hop_limit": 256},
        {"traffic_class": 256},
        {"is_global": 0},
        {"port_num": 2},
    ],
)
def test_an_address_vector_that_leads_nowhere_is_refused(change):
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is checked
        paths.check_vector({**VECTOR, **change}, port_of(GID))
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("address", "group"),
    [
        (b"\xff\x0e" + bytes(14), True),
        (gid(1)[:12] + b"\xe0\0\0\x01", True),
        (gid(1)[:12] + b"\xef\0\0\x01", True),
        (gid(1)[:12] + b"\xf0\0\0\x01", False),
        (gid(1), False),
        (GID6, False),
    ],
)
def test_multicast_gids_are_known(address, group):
    assert paths.is_multicast(address) is group


# numbers and resources


def test_numbers_are_given_again_as_late_as_possible():
    numbers = Numbers(2, 6, 5)
    taken = {}
    order = []
    for _ in range(5):
        number = numbers.take(taken)
        order.append(number)
        taken[number] = None
    assert order == [5, 6, 2, 3, 4]
    del taken[6], taken[3]
    assert numbers.take(taken) == 6
    taken[6] = None
    assert numbers.take(taken) == 3


def table(**limits):
    return ResourceTable({kind: limits.get(kind.name, 100) for kind in Kind}, qpn_start=0xFFFFFE)


def test_every_region_may_lie_in_two_buffers_of_its_own():
    limits = limits_of(AdapterConfig(gids=(GID,), max_mr=7, max_agent=3))
    assert set(limits) == set(Kind)
    assert (limits[Kind.MR], limits[Kind.FAST_MR], limits[Kind.ARENA], limits[Kind.AGENT]) == (7, 7, 14, 3)


def test_each_kind_of_resource_has_the_limit_of_its_own_name():
    names = {f"max_{kind.name.lower()}" for kind in Kind} - {"max_fast_mr", "max_arena", "max_eec"}
    names.add("max_ee")
    config = AdapterConfig(gids=(GID,), **{name: 10 + at for at, name in enumerate(sorted(names))})
    found = {kind.name.lower(): limit for kind, limit in limits_of(config).items()}
    mr = config.max_mr
    assert (found.pop("fast_mr"), found.pop("arena"), found.pop("eec")) == (mr, 2 * mr, config.max_ee)
    assert found == {name: getattr(config, f"max_{name}") for name in found}


def test_a_host_may_own_what_costs_its_limit_and_not_a_byte_more():
    resources = table()
    resources.afford(1, 100, 100)
    owned = resources.add(Kind.CQ, 1, 1, None, cost_bytes=60)
    resources.afford(1, 40, 100)
    resources.afford(2, 100, 100)
    with pytest.raises(OSError, match="max_host_bytes = 100") as refused:
        resources.afford(1, 41, 100)
    assert refused.value.errno == errno.ENOMEM
    resources.charge(owned, 50)
    assert resources.cost(1) == 50
    resources.remove(owned)
    assert resources.cost(1) == 0


def test_a_domain_is_admitted_to_whoever_has_it_not_yet():
    resources = table()
    domain = resources.add(Kind.PD, resources.reserve(Kind.PD), 1, None)
    assert [resources.admit(domain, host) for host in (1, 2, 2, 3, 1)] == [False, True, False, True, False]
    for host in (1, 2, 3):
        assert resources.find(Kind.PD, domain.number, host) is domain


def test_queue_pair_numbers_leave_out_those_of_management_and_multicast():
    resources = table()
    given = []
    for _ in range(3):
        number = resources.reserve(Kind.QP)
        resources.add(Kind.QP, number, 1, None)
        given.append(number)
    assert given == [0xFFFFFE, 2, 3]


def test_a_limit_is_kept():
    resources = table(CQ=2)
    for _ in range(2):
        resources.add(Kind.CQ, resources.reserve(Kind.CQ), 1, None)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is checked
        resources.reserve(Kind.CQ)
    assert refused.value.errno == errno.ENOMEM


@pytest.mark.parametrize("kind", [Kind.PD, Kind.CQ])
def test_what_is_used_stays_until_its_last_user_goes(kind):
    resources = table()
    used = resources.add(kind, resources.reserve(kind), 1, None)
    users = [resources.add(Kind.QP, resources.reserve(Kind.QP), 1, None, (used,)) for _ in range(2)]
    for user in users:
        with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is checked
            resources.remove(used)
        assert refused.value.errno == errno.EBUSY
        resources.remove(user)
    resources.remove(used)
    assert resources.count(kind) == 0


def test_another_hosts_resource_is_not_found():
    resources = table()
    resources.add(Kind.CQ, 1, 7, None)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is checked
        resources.find(Kind.CQ, 1, 8)
    assert refused.value.errno == errno.EINVAL


def test_a_resource_is_found_under_its_new_number_alone():
    resources = table()
    one = resources.add(Kind.MR, 5, 1, None)
    resources.renumber(one, 5)
    assert resources.find(Kind.MR, 5, 1) is one
    resources.renumber(one, 6)
    assert (resources.find(Kind.MR, 6, 1), one.number) == (one, 6)
    assert resources.owned(1) == [one]
    with pytest.raises(OSError) as refused:  # noqa: PT011 - the errno is checked
        resources.find(Kind.MR, 5, 1)
    assert refused.value.errno == errno.EINVAL
    resources.remove(one)
    assert (resources.count(Kind.MR), resources.owned(1)) == (0, [])


def test_what_a_host_owns_comes_users_first():
    resources = table()
    for kind in reversed(Kind):
        resources.add(kind, resources.reserve(kind), 1, None)
    assert [resource.kind for resource in resources.owned(1)] == list(Kind)
    assert resources.owned(2) == []


# queue pair attributes


def test_attributes_survive_the_way_through_fields():
    given = {
        "qp_state": 2,
        "ah_attr": {name: 1 for name in qp_attributes.VECTOR_FIELDS if name != "dgid"},
        "dest_qp_num": 17,
        "rq_psn": 5,
    }
    given["ah_attr"]["dgid"] = GID
    mask, fields = qp_attributes.pack(given)
    assert mask == 1 | 1 << 7 | 1 << 20 | 1 << 12
    encode_fields(QP_ATTRIBUTES, fields)
    everything = {name: GID if kind == "gid" else 0 for name, kind in QP_ATTRIBUTES}
    assert qp_attributes.unpack(mask, {**everything, **fields}) == given


@pytest.mark.parametrize("attributes_", [{"nonsense": 1}, {"ah_attr": {"nonsense": 1}}])
def test_unknown_attributes_are_refused(attributes_):
    with pytest.raises(OSError, match="nonsense"):
        qp_attributes.pack(attributes_)


def test_unknown_mask_bits_are_refused():
    with pytest.raises(OSError, match="mask"):
        qp_attributes.unpack(1 << 30, {})


# what a port knows of others


def test_windows_are_one_a_destination_and_their_number_is_bounded():
    port = Port(AdapterConfig(gids=(GID,), max_windows=3), overhead_for=lambda destination: destination[15])
    window = port.window_for(gid(5))
    assert port.window_for(gid(5)) is window
    assert window.packet_overhead_bytes == 5
    window.charge(10)
    for number in range(6, 20):
        port.window_for(gid(number))
    assert len(port.windows) == 3
    assert port.window_for(gid(5)) is window  # what is in flight is not forgotten


def test_a_window_is_as_large_as_the_adapter_was_told():
    told = Port(AdapterConfig(gids=(GID,), window_bytes=1 << 20)).window_for(gid(5))
    assert (told.limit_bytes, told.maximum_bytes) == (1 << 20, 1 << 20)
    window = Port(AdapterConfig(gids=(GID,))).window_for(gid(5))
    assert (window.limit_bytes, window.maximum_bytes) == (3 * 62_960, 4 * 62_960)
    for window_bytes in (-1, 62_959, (1 << 30) + 1):
        with pytest.raises(ValueError, match="window_bytes"):
            AdapterConfig(gids=(GID,), window_bytes=window_bytes)


class Waiting:
    """What a window needs of a queue pair."""

    waiting = False

    def __init__(self):
        self.environment = self

    def schedule(self, queue_pair):
        """The turn is given, and not used."""

    def arm(self, queue_pair, deadline_ns):
        """Nobody looks."""


def test_busy_windows_are_never_forgotten_though_all_are_busy():
    port = Port(AdapterConfig(gids=(GID,), max_windows=3))
    windows = {number: port.window_for(gid(number)) for number in range(5, 8)}
    windows[5].charge(1)
    windows[6].charge(1)
    windows[6].wait(Waiting(), 0)
    windows[6].give_up(1)  # nothing in flight, nobody in the queue, but one has the turn
    assert windows[6].turn is not None
    windows[7].waiters.append(Waiting())
    port.window_for(gid(8)).charge(1)
    port.window_for(gid(9)).charge(1)
    assert all(port.window_for(gid(number)) is window for number, window in windows.items())
    assert len(port.windows) == 5


def test_connections_have_flows_of_their_own_and_both_ends_the_same():
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    ports = []
    for _ in range(64):
        ends = (left, left.qp()), (right, right.qp())
        connect(*ends)
        routes = [end.node.adapter.queue_pairs[qp.number].flow.route for end, qp in ends]
        assert routes[0].source_port == routes[1].source_port
        ports.append(routes[0].source_port)
    assert len(set(ports)) >= 62
    world.close()


# bounds


def native(**values):
    return AdapterConfig(**{"gids": (native_gid(7),), "framing": NATIVE, "lid": 1, **values})


LEAST_WINDOW_BYTES = config_module.MINIMUM_WINDOW_BYTES


@pytest.mark.parametrize(("name", "most"), [
    ("vni", (1 << 24) - 1),
    ("ee_error_cache", 1 << 20),
    ("gid_entries", 16),
    ("window_bytes", 1 << 30),
    ("max_sge", 1024),
    ("max_srq_sge", 1024),
    ("max_qp_rd_atom", 255),
    ("max_qp", (1 << 23) - 2),
    ("max_wq", (1 << 23) - 2),
    ("max_pd", (1 << 24) - 1),
    ("max_qp_wr", 1 << 20),
    ("max_srq_wr", 1 << 20),
    ("max_inline_bytes", 1 << 16),
    ("max_host_bytes", 1 << 40),
    ("max_mr_size_bytes", 1 << 44),
    ("max_cq", 1 << 24),
])  # fmt: skip
def test_a_value_may_be_the_greatest_of_its_range_and_no_more(name, most):
    assert getattr(AdapterConfig(gids=(GID,), **{name: most}), name) == most
    with pytest.raises(ValueError, match=name):
        AdapterConfig(gids=(GID,), **{name: most + 1})


@pytest.mark.parametrize(("name", "least"), [
    ("vni", 0),
    ("ee_error_cache", 0),
    ("gid_entries", 1),
    ("max_qp", 1),
    ("window_bytes", LEAST_WINDOW_BYTES),
])  # fmt: skip
def test_a_value_may_be_the_least_of_its_range_and_no_less(name, least):
    assert getattr(AdapterConfig(gids=(GID,), **{name: least}), name) == least
    with pytest.raises(ValueError, match=name):
        AdapterConfig(gids=(GID,), **{name: least - 1})


def test_a_port_may_have_as_many_gids_and_pkeys_as_its_tables_have_entries():
    gids = tuple(gid(number) for number in range(1, 17))
    pkeys = tuple(range(0x8001, 0x8011))
    config = AdapterConfig(gids=gids, pkeys=pkeys)
    assert (config.gids, config.pkeys) == (gids, pkeys)
    with pytest.raises(ValueError, match="16 P_Keys, not 17"):
        AdapterConfig(gids=(GID,), pkeys=(*pkeys, 0x9001))


@pytest.mark.parametrize(("values", "lmc"), [({"lid": 0xBFFF}, 0), ({"lid": 0x80, "lmc": 7}, 7)])
def test_the_last_unicast_lid_and_the_last_lmc_are_a_ports(values, lmc):
    assert native(**values).lmc == lmc


@pytest.mark.parametrize("values", [
    {"lid": 0xC000},
    {"lid": 0x100, "lmc": 8},
    {"lid": 1, "lmc": 1},
    {"sm_lid": 0xC000},
    {"gids": (native_gid(0),)},
    {"gids": (native_gid(7, 0xFF << 56),)},
    {"gids": (native_gid(7), native_gid(8, 0xFE80_0000_0000_0001))},
])  # fmt: skip
def test_lids_and_gids_that_no_native_port_can_have_are_refused(values):
    with pytest.raises(ValueError, match=r"LID|LMC|GID"):
        native(**values)


def test_a_manager_may_have_a_lid_that_is_no_multiple_of_the_ports_own():
    assert native(lid=8, lmc=3, sm_lid=1).sm_lid == 1


@pytest.mark.parametrize("name", ["lid", "lmc", "sm_lid"])
def test_a_roce_port_has_no_lids(name):
    with pytest.raises(ValueError, match="no LIDs"):
        AdapterConfig(gids=(GID,), **{name: 1})


def test_no_two_ports_have_a_lid_in_common_by_lmc_either():
    def two(lid):
        own = PortConfig(gids=(native_gid(8),), framing=NATIVE, lid=lid)
        return native(lid=4, lmc=1, further_ports=(own,))

    assert two(6).ports[1].lid == 6
    with pytest.raises(ValueError, match="a LID is given to two ports"):
        two(5)


def test_an_adapter_has_255_ports_at_most():
    ports = tuple(PortConfig(gids=(GID6[:14] + number.to_bytes(2, "big"),)) for number in range(2, 257))
    assert len(AdapterConfig(gids=(GID,), further_ports=ports[:254]).ports) == 255
    with pytest.raises(ValueError, match="255 ports at most, not 256"):
        AdapterConfig(gids=(GID,), further_ports=ports)


# bounds of address vectors


@pytest.mark.parametrize(("name", "most"), [
    ("sl", 15), ("flow_label", (1 << 20) - 1), ("hop_limit", 255), ("traffic_class", 255), ("sgid_index", 3),
])  # fmt: skip
def test_a_field_of_a_vector_may_be_the_greatest_of_its_range_and_no_more(name, most):
    port = Port(AdapterConfig(gids=(GID,)))
    paths.check_vector({**VECTOR, name: most}, port)
    with pytest.raises(OSError, match=name) as refusal:
        paths.check_vector({**VECTOR, name: most + 1}, port)
    assert refusal.value.errno == errno.EINVAL


@pytest.mark.parametrize(("name", "most"), [("sl", 14), ("src_path_bits", 127), ("dlid", 0xBFFF)])
def test_a_field_of_a_native_vector_may_be_the_greatest_of_its_range_and_no_more(name, most):
    port = Port(native())
    vector = {"dlid": 5, "port_num": 1}
    paths.check_vector({**vector, name: most}, port)
    with pytest.raises(OSError, match=name) as refusal:
        paths.check_vector({**vector, name: most + 1}, port)
    assert refusal.value.errno == errno.EINVAL


def test_multicast_lids_go_with_multicast_gids_of_datagrams_alone():
    port = Port(native())
    group = {"dlid": 0xFFFE, "is_global": 1, "dgid": b"\xff\x02" + bytes(14)}
    paths.check_vector(group, port)
    unicast, plain = {**group, "dlid": 5}, {**group, "is_global": 0}
    for wrong, connected in ((group, True), (unicast, False), (plain, False)):
        with pytest.raises(OSError, match="a multicast LID goes with a multicast GID"):
            paths.check_vector(wrong, port, connected=connected)
    with pytest.raises(OSError, match="it leads to no port"):
        paths.check_vector({**group, "dlid": 0xFFFF}, port)


def test_only_a_gid_of_the_port_itself_needs_no_lid():
    port = Port(native(lid=9))
    own = {"is_global": 1, "dgid": native_gid(7)}
    paths.check_vector(own, port)
    assert paths.route_of(own, port, 0).dlid == 9
    with pytest.raises(OSError, match="it leads to no port"):
        paths.check_vector({**own, "dgid": native_gid(8)}, port)


def test_a_route_with_a_native_global_header_has_the_vectors_own_hop_limit_and_sgid():
    port = Port(native(gids=(native_gid(7), native_gid(8)), lid=8, lmc=3))
    vector = {"is_global": 1, "dgid": native_gid(9), "dlid": 5, "sgid_index": 1, "src_path_bits": 13}
    route = paths.route_of(vector, port, 0)
    assert (route.hop_limit, route.source, route.slid, route.dlid) == (0, native_gid(8), 13, 5)


def test_the_routes_that_are_remembered_have_a_bound():
    known = paths.ConnectionPaths()
    known.MOST = 2
    port = Port(AdapterConfig(gids=(GID,)))
    for number in range(5):
        known.find({**VECTOR, "traffic_class": number}, port, 1)
        assert 1 <= len(known._known) <= 2


def test_the_window_that_was_used_longest_ago_is_forgotten_first():
    port = Port(AdapterConfig(gids=(GID,), max_windows=2))
    for number in (5, 6, 5, 7):
        port.window_for(gid(number))
    assert list(port.windows) == [gid(5), gid(7)]


@pytest.mark.parametrize(("values", "overhead", "far"), [
    ({}, 100, True), ({"window_bytes": 1 << 20}, 100, False), ({}, 0, False),
])  # fmt: skip
def test_only_a_window_of_a_path_that_costs_more_grows_far_unless_configured(values, overhead, far):
    window = Port(AdapterConfig(gids=(GID,), **values), lambda destination: overhead).window_for(gid(5))
    assert (window.packet_overhead_bytes, window.far_maximum_bytes > 0) == (overhead, far)


def test_packets_of_a_native_port_cost_their_own_bytes():
    assert Port(native(), lambda destination: 100).window_for(native_gid(9)).packet_overhead_bytes == 0
