"""Addresses: GIDs, routes, vectors, handles, and the way back to the sender of a datagram."""

import errno

import pytest
from verbs_fake_driver import GID as OWN_GID
from verbs_fake_driver import OTHER_GID, FakeDriver

from softhca.machine.primitives import address_of
from softhca.verbs import enums as e
from softhca.verbs import utils
from softhca.verbs.addr import AH, GID, GRH, AHAttr, GlobalRoute
from softhca.verbs.base import PyverbsRDMAErrno, inc_rkey
from softhca.verbs.cq import WC
from softhca.verbs.device import Context
from softhca.verbs.fork import fork_init, is_fork_initialized
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

TEXT = "fe80:0000:0000:0000:0011:22ff:fe33:4455"


def test_a_gid_is_eight_words() -> None:
    gid = GID(TEXT)
    assert str(gid) == gid.gid == TEXT
    assert gid.raw == bytes.fromhex(TEXT.replace(":", ""))
    gid.gid = str(GID())
    assert gid.raw == bytes(16)
    assert GID.from_bytes(OTHER_GID).gid.endswith("ffff:7f00:0003")


@pytest.mark.parametrize(
    "text", ["", "fe80::1", TEXT + ":0000", TEXT[:-1], "a" * 39]
)
def test_anything_else_is_no_gid(text: str) -> None:
    with pytest.raises(PyverbsUserError, match="Invalid GID"):
        GID(text)
    for target in (GRH(), GlobalRoute()):
        with pytest.raises(PyverbsUserError):
            target.dgid = text
    with pytest.raises(PyverbsUserError):
        GID.from_bytes(bytes(15))


def test_gid_text_from_halves_read_from_memory() -> None:
    raw = GID(TEXT).raw
    assert utils.gid_str(int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")) == TEXT
    assert utils.gid_str_to_array(TEXT)[:2] == ["fe", "80"]


def test_a_global_vector_needs_a_route_and_hides_it_when_it_is_not_global() -> None:
    with pytest.raises(PyverbsUserError, match="gr parameter is None"):
        AHAttr(is_global=1)
    plain = AHAttr(dlid=4, gr=GlobalRoute(GID(TEXT), 1))
    assert (plain.dgid, plain.flow_label, plain.sgid_index, plain.hop_limit, plain.traffic_class) == (
        None,
    ) * 5
    assert plain.as_dict()["dgid"] == bytes(16)
    plain.dgid = TEXT
    assert plain.as_dict()["dgid"] == bytes(16)


def test_a_vector_survives_the_way_to_the_driver_and_back() -> None:
    attr = AHAttr(1, 2, 3, 4, 1, 5, GlobalRoute(GID(TEXT), 6, 7, 8, 9))
    again = AHAttr.from_dict(attr.as_dict())
    assert again.as_dict() == attr.as_dict()
    assert (again.dgid, again.flow_label, again.sgid_index, again.hop_limit, again.traffic_class) == (
        TEXT,
        6,
        7,
        8,
        9,
    )
    again.flow_label, again.sgid_index, again.hop_limit, again.traffic_class = 1, 2, 3, 4
    again.dgid = str(GID())
    assert (again.dgid, again.flow_label, again.sgid_index, again.hop_limit, again.traffic_class) == (
        str(GID()),
        1,
        2,
        3,
        4,
    )
    assert "flow label" in str(again)
    assert "flow label" not in str(AHAttr())


def test_headers_and_routes_as_text() -> None:
    grh = GRH(GID(TEXT), GID(), 1, 2, 3, 4)
    assert (grh.sgid, grh.dgid, grh.hop_limit) == (TEXT, str(GID()), 4)
    grh.sgid, grh.dgid = grh.dgid, grh.sgid
    assert (grh.sgid, grh.dgid) == (str(GID()), TEXT)
    assert TEXT in str(grh)
    assert "hop limit" in str(GlobalRoute())
    assert GlobalRoute().hop_limit == 1


@pytest.fixture
def pd(context: Context) -> PD:
    return PD(context)


def test_a_handle_of_a_vector(pd: PD, driver: FakeDriver) -> None:
    attr = AHAttr(is_global=1, gr=GlobalRoute(GID.from_bytes(OTHER_GID), sgid_index=1))
    ah = AH(pd, attr=attr)
    assert driver.address_vectors == {ah.number: {"pd": pd.number, **attr.as_dict()}}
    ah.close()
    assert driver.address_vectors == {}
    with pytest.raises(PyverbsUserError):
        ah.number  # noqa: B018


def test_a_refused_handle_has_the_devices_errno(pd: PD, driver: FakeDriver) -> None:
    driver.refusals["create_ah"] = errno.EINVAL
    with pytest.raises(PyverbsRDMAError) as caught:
        AH(pd, attr=AHAttr())
    assert caught.value.error_code == errno.EINVAL


IPV4 = bytes(20) + b"\x45\x9c" + bytes(6) + b"\x40\x11" + bytes(2) + OTHER_GID[12:] + OWN_GID[12:]
IPV6 = b"\x69\xca\x34\x56" + bytes(3) + b"\x3f" + OTHER_GID + OWN_GID


@pytest.mark.parametrize(
    ("header", "flow_label", "traffic_class", "hop_limit"),
    [(IPV4, 0, 0x9C, 64), (IPV6, 0xA3456, 0x9C, 63)],
    ids=["IPv4", "GRH"],
)
def test_a_handle_of_a_completion_leads_back_to_the_sender(
    pd: PD, driver: FakeDriver, header: bytes, flow_label: int, traffic_class: int, hop_limit: int
) -> None:
    memory = bytearray(header)
    wc = WC(wc_flags=e.IBV_WC_GRH, slid=7, sl=3, dlid_path_bits=1)
    ah = AH(pd, wc=wc, grh=address_of(memory), port_num=1)
    assert driver.address_vectors[ah.number] == {
        "pd": pd.number,
        "dlid": 7,
        "sl": 3,
        "src_path_bits": 1,
        "static_rate": 0,
        "is_global": 1,
        "port_num": 1,
        "dgid": OTHER_GID,
        "sgid_index": 1,
        "flow_label": flow_label,
        "traffic_class": traffic_class,
        "hop_limit": hop_limit,
    }


def test_without_a_grh_the_way_back_is_local(pd: PD, driver: FakeDriver) -> None:
    nothing = bytearray(40)  # where no header stands, and nobody looks for one
    ah = AH(pd, wc=WC(slid=7), grh=address_of(nothing), port_num=1)
    assert driver.address_vectors[ah.number]["is_global"] == 0
    assert driver.address_vectors[ah.number]["dlid"] == 7


def test_a_header_that_is_none_or_not_for_us_is_refused(pd: PD, driver: FakeDriver) -> None:
    for header, number in ((bytes(40), errno.EPROTONOSUPPORT), (IPV6[:24] + b"\x01" * 16, errno.ENOENT)):
        memory = bytearray(header)
        with pytest.raises(PyverbsRDMAError) as caught:
            AH(pd, wc=WC(wc_flags=1), grh=address_of(memory), port_num=1)
        assert caught.value.error_code == number
    assert driver.address_vectors == {}


@pytest.mark.parametrize(
    "arguments", [{}, {"wc": WC()}, {"wc": WC(), "grh": 1}, {"attr": AHAttr(), "wc": WC()}]
)
def test_a_handle_needs_one_complete_origin(pd: PD, arguments) -> None:
    with pytest.raises(PyverbsUserError):
        AH(pd, **arguments)


def test_only_the_low_byte_of_a_key_is_advanced() -> None:
    assert inc_rkey(0x1234) == 0x1235
    assert inc_rkey(0x12FF) == 0x1200
    assert inc_rkey(0xFFFFFFFF) == 0xFFFFFF00


def test_text_helpers() -> None:
    assert [utils.qp_type_to_str(each) for each in (2, 3, 4, 77)] == ["RC", "UC", "UD", "Unknown (77)"]
    assert [utils.qp_state_to_str(each) for each in (0, 3, 6, 9)] == ["Reset", "RTS", "Error", "Unknown (9)"]
    assert [utils.mtu_to_str(each) for each in (1, 5, 6)] == [256, 4096, 0]
    assert utils.access_flags_to_str(5) == "Local write Remote read "
    assert utils.mig_state_to_str(1) == "Re-arm"
    assert utils.mig_state_to_str(5) == "Unknown (5)"
    assert utils.rereg_error_to_str(-1) == "IBV_REREG_MR_ERR_INPUT"
    assert utils.rereg_error_to_str(5) == "Unknown error (5)"
    assert utils.htonl(0x01020304) == 0x04030201


def test_fork_needs_nothing() -> None:
    fork_init()
    assert is_fork_initialized() == e.IBV_FORK_UNNEEDED


def test_errno_errors_carry_an_errno() -> None:
    assert isinstance(PyverbsRDMAErrno("x").error_code, int)
