"""What an adapter says of itself and of its ports: every attribute, and the limits of each answer."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

import pytest

from softhca.adapter import attributes
from softhca.adapter.attributes import device_attributes, guid_of, odp_attributes, port_attributes
from softhca.adapter.config import (
    MAXIMUM_WINDOW_BYTES,
    MINIMUM_WINDOW_BYTES,
    NATIVE,
    AdapterConfig,
    PortConfig,
    check_lid,
    check_prefix,
    native_gid,
)
from softhca.adapter.counters import port_figures
from softhca.adapter.managed_node import ManagedAdapter
from softhca.adapter.port import Port
from softhca.adapter.profile import Profile
from softhca.testing.addressing import gid
from softhca.testing.network import Network
from softhca.verbs import enums

NOT_THERE = ("max_fmr", "max_map_per_fmr")
LIMITS = (
    "max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd", "max_mw", "max_mcast_grp",
    "max_mcast_qp_attach", "max_ah", "max_srq", "max_srq_wr", "max_srq_sge", "max_ee", "max_rdd",
)  # fmt: skip


SCALING = {
    "max_wq_type_rq": 16_384, "max_rwq_indirection_tables": 4096, "max_rwq_indirection_table_size": 2048,
    "rss_qpts": 1 << 8, "rx_hash_fields_mask": 255, "rx_hash_function": 1,
}  # fmt: skip


def native_config(**others):
    return AdapterConfig(gids=(native_gid(5),), framing=NATIVE, lid=4, **others)


@pytest.mark.parametrize("native", [False, True])
def test_every_device_attribute_is_what_the_configuration_says(native):
    limits = {name: 11 + number for number, name in enumerate(LIMITS)}
    more = {"max_mr_size_bytes": 1 << 30, "max_inline_bytes": 99, "max_qp_rd_atom": 4, "firmware": "1.2"}
    config = native_config(**limits, **more) if native else AdapterConfig(gids=(gid(1),), **limits, **more)
    guid = 5 if native else guid_of(gid(1))
    assert device_attributes(config) == {
        **limits,
        **dict.fromkeys(NOT_THERE, 0),
        "fw_ver": b"1.2",
        "node_guid": guid,
        "sys_image_guid": guid,
        "max_mr_size": 1 << 30,
        "page_size_cap": 4096,
        "vendor_id": 0x02C5,
        "vendor_part_id": 1,
        "hw_ver": 1,
        # BAD_PKEY_CNTR, CURR_QP_STATE_MOD, PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, MEM_WINDOW,
        # XRC, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B
        "device_cap_flags": sum(1 << bit for bit in (1, 4, 7, 10, 11, 12, 17, 20, 21, 24)),
        "device_cap_flags_ex": 1 << 40 | 1 << 38,  # ATOMIC_WRITE, FLUSH_GLOBAL
        "max_sge_rd": limits["max_sge"],
        "max_qp_rd_atom": 4,
        "max_ee_rd_atom": 4,
        "max_ee_init_rd_atom": 4,
        "max_res_rd_atom": 4 * limits["max_qp"],
        "max_qp_init_rd_atom": 4,
        "atomic_cap": 1,
        "max_raw_ipv6_qp": limits["max_qp"] if native else 0,
        "max_raw_ethy_qp": limits["max_qp"],
        "max_total_mcast_qp_attach": limits["max_mcast_grp"] * limits["max_mcast_qp_attach"],
        "max_inline_data": 99,
        "max_pkeys": 16,
        "profile": b"hca",
        "local_ca_ack_delay": 15,
        "phys_port_cnt": 1,
        "qp_rate_limit_min": 8,
        "qp_rate_limit_max": 100_000_000,
        "qp_rate_limit_qpts": sum(1 << kind for kind in (2, 3, 4, 8, 9)),  # all but RD
        **({} if native else SCALING),
    }


@pytest.mark.parametrize(("profile", "native", "told"), [
    # XRC, ATOMIC_WRITE and FLUSH_GLOBAL, READs and atomics of a connection and of an EE context, atomics,
    # EE contexts and domains, types with a rate limit (RC 2, UC 3, UD 4, raw 8, XRC 9)
    ("hca", False, (1, 5 << 38, 4, 4, 4, 1, 7, 9, (2, 3, 4, 8, 9))),
    ("tca", False, (0, 0, 0, 0, 0, 0, 0, 0, (4,))),
    ("tca", True, (0, 0, 0, 0, 0, 0, 0, 0, (4, 8))),
    ("tca+uc+write", False, (0, 0, 0, 0, 0, 0, 0, 0, (3, 4))),
    ("tca+rc+write", False, (0, 5 << 38, 0, 0, 0, 0, 0, 0, (2, 4))),
    ("tca+rc+read", False, (0, 0, 4, 0, 0, 0, 0, 0, (2, 4))),
    ("tca+rc+atomic", False, (0, 0, 4, 0, 0, 1, 0, 0, (2, 4))),
])  # fmt: skip
def test_a_device_tells_what_its_profile_has(profile, native, told):
    limits = {"profile": Profile.of(profile), "max_qp_rd_atom": 4, "max_ee": 7, "max_rdd": 9}
    config = native_config(**limits) if native else AdapterConfig(gids=(gid(1),), **limits)
    found = device_attributes(config)
    *rest, kinds = told
    assert [
        found["device_cap_flags"] >> 20 & 1,
        *(found[name] for name in (
            "device_cap_flags_ex", "max_qp_rd_atom", "max_ee_rd_atom", "max_ee_init_rd_atom", "atomic_cap",
            "max_ee", "max_rdd",
        )),
        found["qp_rate_limit_qpts"],
    ] == [*rest, sum(1 << kind for kind in kinds)]  # fmt: skip


def test_a_node_guid_that_is_configured_is_the_devices():
    found = device_attributes(AdapterConfig(gids=(gid(1),), node_guid=0x1234))
    assert (found["node_guid"], found["sys_image_guid"]) == (0x1234, 0x1234)


@pytest.mark.parametrize("others", [
    {"profile": Profile.of("tca")}, {"ethernet_frames": False},
    {"further_ports": (PortConfig(gids=(native_gid(7),), framing=NATIVE, lid=9),)},
])  # fmt: skip
def test_without_ethernet_frames_there_is_no_receive_side_scaling(others):
    assert not SCALING.keys() & device_attributes(AdapterConfig(gids=(gid(1),), **others)).keys()


@pytest.mark.parametrize(("profile", "rc", "uc", "ud", "xrc"), [
    # SEND 1, RECV 2, WRITE 4, READ 8, ATOMIC 16, SRQ_RECV 32, ATOMIC_WRITE 128
    ("hca", 255, 39, 35, 61), ("tca", 0, 0, 35, 0), ("tca+uc", 0, 35, 35, 0), ("tca+rc+read", 43, 0, 35, 0),
])  # fmt: skip
def test_on_demand_paging_is_told_for_what_the_profile_has(profile, rc, uc, ud, xrc):
    caps = {"rc_odp_caps": rc, "uc_odp_caps": uc, "ud_odp_caps": ud, "xrc_odp_caps": xrc}
    assert odp_attributes(Profile.of(profile), True) == {**caps, "odp_general_caps": 3}
    assert set(odp_attributes(Profile.of(profile), False).values()) == {0}


def test_windows_of_type_2a_have_the_other_flag():
    flags = device_attributes(AdapterConfig(gids=(gid(1),), type_2="2A"))["device_cap_flags"]
    assert (flags >> 23 & 1, flags >> 24 & 1) == (1, 0)


@pytest.mark.parametrize("native", [False, True])
def test_every_port_attribute_is_the_ports(native):
    config = native_config() if native else AdapterConfig(gids=(gid(1),), active_mtu=4)
    assert port_attributes(Port(config), 5, 6) == {
        "state": 4,
        "max_mtu": 5,
        "active_mtu": 3 if native else 4,
        "gid_tbl_len": 16,
        "port_cap_flags": 1 << 16 if native else 1 << 16 | 1 << 26,  # CM, IP_BASED_GIDS
        "max_msg_sz": 1 << 31,
        "bad_pkey_cntr": 5,
        "qkey_viol_cntr": 6,
        "pkey_tbl_len": 16,
        "lid": 4 if native else 0,
        "sm_lid": 0,
        "lmc": 0,
        "max_vl_num": 5 if native else 1,  # VL 0 … 14, VL 0
        "sm_sl": 0,
        "subnet_timeout": 0,
        "init_type_reply": 0,
        "active_width": 2,
        "active_speed": 32,
        "phys_state": 5,
        "link_layer": 1 if native else 2,
        "flags": 0,
        "port_cap_flags2": 0,
    }


def test_the_figures_of_a_port_are_its_own_the_transports_its_links_and_its_management_queue_pairs():
    network = Network(link="native")
    adapter = network.add().adapter
    port = adapter.ports[0]
    own = set(port_figures(port, adapter.counters))
    port.link_counters = lambda: {"link_told": 7}
    figures = port_figures(port, adapter.counters)
    assert figures["link_told"] == 7
    assert set(figures) == own | {"link_told"}
    assert set(port.counters.as_dict()) < own
    assert {f"transport_{name}" for name in adapter.counters.as_dict()} < own
    for number in (0, 1):
        names = {f"management{number}_{name}" for name in port.management[number].dispatcher.counters}
        assert names
        assert names < own
    counted = port.management[1].connections.manager.counters
    assert counted
    assert {f"cm_{name}" for name in counted} < own
    network.close()


def test_a_port_that_is_down_is_polling_where_it_has_an_infiniband_link():
    port = Port(native_config())
    port.set_state(1)
    assert port_attributes(port, 0, 0)["phys_state"] == 2
    port = Port(AdapterConfig(gids=(gid(1),)))
    port.set_state(1)
    assert port_attributes(port, 0, 0)["phys_state"] == 5


@pytest.mark.parametrize(
    ("speed", "older", "extended", "second"),
    [(1, 1, 0, 0), (4, 4, 0, 0), (32, 4, 2, 0), (64, 4, 4, 0), (128, 4, 8, 0), (256, 4, 0, 1)],
)
def test_a_manager_is_told_a_ports_speed_in_the_fields_of_port_info(speed, older, extended, second):
    network = Network(link="native")
    adapter = network.add(active_speed=speed).adapter
    told = ManagedAdapter(adapter, adapter.ports[0]).port_info(0)
    assert (told.link_speed_active, told.link_speed_ext_active) == (older, extended)
    assert (told.link_speed_ext_supported, told.link_speed_ext_enabled) == (extended, extended)
    more = told.link_speed_ext2_active, told.link_speed_ext2_supported, told.link_speed_ext2_enabled
    assert more == (second,) * 3
    network.close()


def managed_ports(at):
    """An adapter of two different ports, asked at one of them, and what its ports are set to."""
    ports = [
        SimpleNamespace(
            number=number, native=number == 1, gid_table=[native_gid(number, prefix=number << 8)],
            gid_prefix=number << 8, lid=10 + number, sm_lid=20 + number, state=1 + number, lmc=number,
            sm_sl=3 + number, subnet_timeout=5 + number, bad_pkeys=lambda number=number: 30 + number,
            own=SimpleNamespace(active_width=number, active_speed=number, active_mtu=2 + number),
        )
        for number in (1, 2)
    ]  # fmt: skip
    given = []
    adapter = SimpleNamespace(
        ports=ports,
        counters=SimpleNamespace(drops_qkey=40),
        config=SimpleNamespace(gid_table_length=6, pkey_table_length=7),
        device_attributes={"sys_image_guid": 51, "node_guid": 52, "vendor_part_id": 53, "hw_ver": 54,
                           "vendor_id": 55},
        set_port_info=lambda number, **values: given.append((number, values)),
    )  # fmt: skip
    return ManagedAdapter(adapter, ports[at - 1]), given


@pytest.mark.parametrize("at", [1, 2])
def test_a_manager_is_told_of_the_node_and_of_the_port_that_it_has_come_by(at):
    told = managed_ports(at)[0].node_info()
    assert (told.num_ports, told.local_port_num, told.port_guid, told.partition_cap) == (2, at, at, 7)
    assert (told.system_image_guid, told.node_guid) == (51, 52)
    assert (told.device_id, told.revision, told.vendor_id) == (53, 54, 55)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_manager_is_told_of_the_port_that_it_asks_for_and_0_is_the_one_it_has_come_by(at, asked):
    told, of = managed_ports(at)[0].port_info(asked), asked or at
    assert (told.local_port_num, told.lid, told.sm_lid, told.gid_prefix) == (at, 10 + of, 20 + of, of << 8)
    assert (told.state, told.lmc, told.sm_sl, told.subnet_timeout) == (1 + of, of, 3 + of, 5 + of)
    assert (told.p_key_violations, told.q_key_violations, told.guid_cap) == (30 + of, 40, 6)
    assert (told.link_width_active, told.link_speed_active, told.neighbor_mtu) == (of, of, 2 + of)
    assert (told.vl_cap, told.operational_vls) == ((5, 5) if of == 1 else (1, 1))


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_manager_sets_the_port_that_it_names_which_keeps_its_state_unless_it_is_told(at, asked):
    managed, given = managed_ports(at)
    managed.set_port_info(asked, {"lid": 9})
    managed.set_port_info(asked, {"lid": 9, "state": 4})
    of = asked or at
    assert given == [(of, {"state": 1 + of, "lid": 9}), (of, {"state": 4, "lid": 9})]


def test_counts_that_do_not_fit_into_port_info_are_told_as_the_most_that_does():
    values = {"gid_prefix": 1, "lid": 1, "sm_lid": 2, "state": 4, "lmc": 0, "sm_sl": 0, "subnet_timeout": 0}
    own = SimpleNamespace(active_width=2, active_speed=32, active_mtu=3)
    port = SimpleNamespace(**values, number=1, own=own, native=True, bad_pkeys=lambda: 0x12345)
    adapter = SimpleNamespace(
        ports=[port],
        counters=SimpleNamespace(drops_qkey=0x12345),
        config=SimpleNamespace(gid_table_length=300),
    )
    told = ManagedAdapter(adapter, port).port_info(1)
    assert (told.guid_cap, told.q_key_violations, told.p_key_violations) == (0xFF, 0xFFFF, 0xFFFF)
    assert ManagedAdapter(adapter, port).port_info(2) is None


@pytest.mark.parametrize(
    ("good", "bad"), [(0, -1), (MINIMUM_WINDOW_BYTES, MINIMUM_WINDOW_BYTES - 1),
                      (MAXIMUM_WINDOW_BYTES, MAXIMUM_WINDOW_BYTES + 1)],
)  # fmt: skip
def test_a_window_has_its_least_and_most_bytes(good, bad):
    assert AdapterConfig(gids=(gid(1),), window_bytes=good).window_bytes == good
    with pytest.raises(ValueError, match="window_bytes"):
        AdapterConfig(gids=(gid(1),), window_bytes=bad)


def test_a_prefix_is_of_unicast_addresses():
    check_prefix(1)
    check_prefix((0xFF << 56) - 1)
    for bad in (-1, 0, 0xFF << 56):
        with pytest.raises(ValueError, match="prefix"):
            check_prefix(bad)


@pytest.mark.parametrize(
    ("lid", "lmc", "right"),
    [(0, 0, True), (0xBFFF, 0, True), (0xC000, 0, False), (-1, 0, False), (0x80, 7, True), (0x40, 7, False),
     (0x100, 8, False), (2, 1, True), (3, 1, False), (1, -1, False)],
)  # fmt: skip
def test_a_base_lid_is_unicast_and_ends_in_as_many_zeros_as_its_mask_has_bits(lid, lmc, right):
    if right:
        check_lid(lid, lmc)
        return
    with pytest.raises(ValueError, match=r"LID|LMC"):
        check_lid(lid, lmc)


def test_the_lids_of_two_ports_may_touch_and_not_overlap():
    def of(second):
        port = PortConfig(gids=(native_gid(6),), framing=NATIVE, lid=second)
        return native_config(lmc=2, further_ports=(port,)).ports[1].lid

    assert of(8) == 8
    assert of(3) == 3
    for taken in (4, 5, 7):
        with pytest.raises(ValueError, match="LID"):
            of(taken)


# number of ours, and where libibverbs's header has it
OF_VERBS = {
    "ATOMIC_NONE": "IBV_ATOMIC_NONE", "ATOMIC_HCA": "IBV_ATOMIC_HCA", "MTU_4096": "IBV_MTU_4096",
    "LINK_LAYER_INFINIBAND": "IBV_LINK_LAYER_INFINIBAND", "LINK_LAYER_ETHERNET": "IBV_LINK_LAYER_ETHERNET",
    "GID_TYPE_IB": "IBV_GID_TYPE_IB", "GID_TYPE_ROCE_V2": "IBV_GID_TYPE_ROCE_V2",
    "ODP_SUPPORT": "IBV_ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT": "IBV_ODP_SUPPORT_IMPLICIT",
    "PORT_CAP_CM": "IBV_PORT_CM_SUP", "PORT_CAP_IP_BASED_GIDS": "IBV_PORT_IP_BASED_GIDS",
}  # fmt: skip


def test_numbers_are_those_of_libibverbs():
    kinds = [each for each in vars(enums).values() if isinstance(each, type) and issubclass(each, Enum)]
    known = {name: one.value for each in kinds for name, one in each.__members__.items()}
    known.update({name: number for name, number in vars(enums).items() if isinstance(number, int)})
    ours = {name: number for name, number in vars(attributes).items() if isinstance(number, int)}
    caps = {name: f"IBV_DEVICE_{name[4:]}" for name in ours if name.startswith("CAP_")}
    odp = {name: f"IBV_ODP_SUPPORT_{name[4:]}" for name in ours if name.startswith("ODP_")}
    missing = []
    for name, theirs in {**caps, **odp, **OF_VERBS}.items():
        if theirs in known:
            assert ours[name] == known[theirs], name
        else:
            missing.append(name)
    # of newer headers than the one that the enumerations are of, and codes of management datagrams
    newer = {"CAP_FLUSH_GLOBAL": 1 << 38, "CAP_ATOMIC_WRITE": 1 << 40}
    assert set(missing) <= {*newer, "PORT_CAP_CM", "PORT_CAP_IP_BASED_GIDS", "ODP_FLUSH", "ODP_ATOMIC_WRITE"}
    assert newer == {name: ours[name] for name in newer}
    assert (ours["PHYS_POLLING"], ours["PHYS_LINK_UP"], ours["VL_0"], ours["VL_0_TO_14"]) == (2, 5, 1, 5)
    assert (ours["ODP_FLUSH"], ours["ODP_ATOMIC_WRITE"]) == (1 << 6, 1 << 7)
    assert (ours["PORT_CAP_CM"], ours["PORT_CAP_IP_BASED_GIDS"]) == (1 << 16, 1 << 26)
    assert (ours["VENDOR_ID"], ours["VENDOR_PART_ID"]) == (0x02C5, 1)
