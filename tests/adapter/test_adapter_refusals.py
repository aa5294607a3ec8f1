"""Each refusal of a command says which attribute breaks which rule, to the program that asked."""

import errno

import pytest

from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.queues.states import ERR, INIT, RESET, RTR, RTS, SQD
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, RAW, RC, UC, UD, End
from softhca.testing.network import Network

TO_INIT = {"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": ALL_RIGHTS}
TO_RTR = {
    "qp_state": RTR,
    "ah_attr": {"dgid": gid(1), "is_global": 1, "port_num": 1, "hop_limit": 1},
    "path_mtu": 3,
    "dest_qp_num": 5,
    "rq_psn": 0,
    "max_dest_rd_atomic": 1,
    "min_rnr_timer": 1,
}


def without(attributes, *names):
    return {name: value for name, value in attributes.items() if name not in names}


def path(**changes):
    return {**TO_RTR, "ah_attr": {**TO_RTR["ah_attr"], **changes}}


@pytest.fixture
def end():
    world = Network()
    yield End(world.add(1, max_qp_rd_atom=16))
    world.close()


# kind, attributes that lead to where it is asked, attributes that are refused, what the text says
MODIFY = [
    (RC, [], {"qp_state": RTR}, "qp_state: RC has no transition RESET to RTR"),
    (RC, [], {"qp_state": 9}, "qp_state: RC has no transition RESET to 9"),
    (UD, [], {"qp_state": SQD}, "qp_state: UD has no transition RESET to SQD"),
    (RC, [], without(TO_INIT, "port_num"), "port_num is required for RESET to INIT of RC"),
    (UC, [], without(TO_INIT, "qp_access_flags"), "qp_access_flags is required for RESET to INIT of UC"),
    (UD, [], without(TO_INIT, "qp_access_flags"), "qkey is required for RESET to INIT of UD"),
    (RC, [TO_INIT], without(TO_RTR, "dest_qp_num"), "dest_qp_num is required for INIT to RTR of RC"),
    (RC, [TO_INIT], without(TO_RTR, "rq_psn", "path_mtu"), "path_mtu is required for INIT to RTR of RC"),
    (RC, [TO_INIT], {**TO_RTR, "sq_psn": 1}, "sq_psn cannot be given for INIT to RTR of RC"),
    (UC, [TO_INIT], TO_RTR, "max_dest_rd_atomic cannot be given for INIT to RTR of UC"),
    (RC, [TO_INIT], {"timeout": 1}, "timeout cannot be given for INIT to INIT of RC"),
    (RC, [TO_INIT], {**TO_RTR, "min_rnr_timer": 32}, "min_rnr_timer = 32 is not in 0 … 31"),
    (RC, [TO_INIT], {**TO_RTR, "rq_psn": 1 << 24}, "rq_psn = 16777216 is not in 0 … 16777215"),
    (RC, [TO_INIT], {**TO_RTR, "dest_qp_num": 1 << 24}, "dest_qp_num = 16777216 is not in 0 … 16777215"),
    (RC, [TO_INIT], {**TO_RTR, "path_mtu": 6}, "path_mtu = 6"),
    (RC, [TO_INIT], {**TO_RTR, "path_mtu": 0}, "path_mtu = 0"),
    (RC, [TO_INIT], {**TO_RTR, "max_dest_rd_atomic": 17}, "max_dest_rd_atomic = 17 is beyond"),
    (RC, [TO_INIT], path(port_num=2), "port_num = 2 in a path from port 1"),
    (RC, [TO_INIT], path(sl=16), "sl is 0…15"),
    (RC, [TO_INIT], path(dgid=bytes(16)), "dgid: on RoCE"),
    (RC, [TO_INIT], path(is_global=0), "is_global, dgid: on RoCE"),
    (RC, [TO_INIT], path(sgid_index=7), "sgid_index = 7: there is no such GID"),
    (RC, [TO_INIT], {**TO_RTR, "alt_ah_attr": TO_RTR["ah_attr"]}, "there is no port 0"),
    (RC, [], {**TO_INIT, "pkey_index": 4}, "pkey_index = 4: the table has 1 P_Keys"),
    (RC, [], {**TO_INIT, "port_num": 2}, "port 2"),
    (RC, [TO_INIT, {"qp_state": ERR}], {"qp_state": ERR, "timeout": 1},
     "timeout cannot be given for ERR to ERR"),
    (UD, [{**without(TO_INIT, "qp_access_flags"), "qkey": 1}, {"qp_state": RTR}],
     {"qp_state": RTS, "sq_psn": 0, "cur_qp_state": RESET},
     "cur_qp_state = RESET, but the queue pair is in RTR"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "before", "attributes", "text"), MODIFY, ids=map(str, range(len(MODIFY))))
def test_modify_qp_names_the_attribute_and_the_rule(end, kind, before, attributes, text):
    qp = end.qp(kind)
    for each in before:
        qp.modify(each)
    with pytest.raises(DriverError) as error:
        qp.modify(attributes)
    assert error.value.errno in (errno.EINVAL, errno.EOPNOTSUPP)
    assert error.value.message.startswith("MODIFY_QP: ")
    assert text in error.value.message


RING = {"entries": 1, "body_bytes": 48, "frames": [(0, 0)]}

# command, its fields, errno, what the text says
COMMANDS = [
    (control.QUERY_PORT, {"port_num": 9}, errno.EINVAL, "port 9"),
    (control.QUERY_GID, {"port_num": 1, "index": 9999}, errno.EINVAL, "index = 9999: the GID table"),
    (control.QUERY_PKEY, {"port_num": 1, "index": 9999}, errno.EINVAL, "index = 9999: the P_Key table"),
    (control.QUERY_COUNTERS, {"scope": 9}, errno.EINVAL, "scope: "),
    (control.DEALLOC_PD, {"pd": 99}, errno.EINVAL, "no PD 99"),
    (control.DESTROY_CQ, {"cq": 99}, errno.EINVAL, "no CQ 99"),
    (control.DESTROY_QP, {"qp_num": 99}, errno.EINVAL, "no QP 99"),
    (control.DESTROY_SRQ, {"srq": 99}, errno.EINVAL, "no SRQ 99"),
    (control.DESTROY_AH, {"ah": 99}, errno.EINVAL, "no AH 99"),
    (control.DEREG_MR, {"lkey": 99}, errno.EINVAL, "no MR 99"),
    (control.DEALLOC_MW, {"mw": 99}, errno.EINVAL, "99"),
    (control.CREATE_CQ, {"comp_vector": 1, **RING}, errno.EINVAL, "comp_vector, flags: "),
    (control.CREATE_CQ, {"channel": 1, **RING}, errno.EBADF, "no event channel 1"),
    (control.CREATE_CQ, {**RING, "entries": 0}, errno.EINVAL, "entries, not 0"),
    (control.CREATE_QP, {"qp_type": 99}, errno.EOPNOTSUPP, "qp_type = 99"),
    (control.CREATE_QP, {"qp_type": RAW}, errno.EOPNOTSUPP, "qp_type: RoCEv2"),
    (control.CREATE_QP, {"qp_type": RC, "xrcd": 1}, errno.EINVAL, "xrcd: "),
    (control.CREATE_QP, {"qp_type": RC, "create_flags": 1}, errno.EOPNOTSUPP, "create_flags: "),
    (control.OPEN_XRCD, {"flags": 8}, errno.EINVAL, "flags = 0x8"),
    (control.CREATE_SRQ, {"pd": 1, "max_wr": 1, "max_sge": 1, "srq_type": 2}, errno.EOPNOTSUPP, "srq_type ="),
    (control.CREATE_SRQ, {"pd": 1, "max_wr": 1, "max_sge": 1, "xrcd": 1}, errno.EINVAL, "cq, xrcd: "),
    (control.CREATE_QP, {"qp_type": RC, "create_flags": control.CREATE_TELLS_LOSSES}, errno.EINVAL,
     "create_flags: only UC"),
    (control.CREATE_QP, {"qp_type": RC, "max_send_wr": 1 << 30}, errno.EINVAL, "max_send_wr = 1073741824"),
    (control.CREATE_SRQ, {"pd": 1, "max_wr": 0}, errno.EINVAL, "max_wr is 1"),
    (control.CREATE_AH, {"pd": 1, "is_global": 1}, errno.EINVAL, "dgid: on RoCE"),
    (control.ALLOC_MW, {"pd": 1, "type": 3}, errno.EINVAL, "type 3"),
    (control.ALLOC_FAST_MR, {"pd": 1, "max_pages": 0}, errno.EINVAL, "max_pages: "),
    (control.SET_DATA_ACCESS, {"allowed": 2}, errno.EINVAL, "allowed = 2"),
    (control.REG_MR, {"pd": 1, "length": 1 << 62}, errno.EINVAL, "length: "),
    (control.REG_MR, {"pd": 1, "access": 64, "length": 1 << 62}, errno.EINVAL, "length: "),
    (control.REG_MR, {"pd": 1, "access": 64, "length": 0}, errno.EINVAL, "no region of 0 bytes"),
    (control.REG_MR, {"pd": 1, "access": 64, "length": 2**64 - 1, "va": 1}, errno.EINVAL, "length: "),
    (control.REGISTER_AGENT, {"port_num": 1}, errno.EINVAL, "management class 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "fields", "number", "text"), COMMANDS, ids=map(str, range(len(COMMANDS)))
)
def test_commands_name_the_attribute_and_the_rule(end, command, fields, number, text):
    if fields.get("pd") == 1:
        fields = {**fields, "pd": end.pd}
    with pytest.raises(DriverError) as error:
        end.device.session.call(command, **fields)
    assert error.value.errno == number
    assert error.value.message.startswith(control.COMMANDS[command][0] + ": ")
    assert text in error.value.message


def test_what_an_adapter_writes_is_shown_on_one_line(end, monkeypatch):
    send = end.node.adapter.hosts[1].replies.send

    def spoilt(tag, command, code=0, values=None, reason=""):
        return send(tag, command, code, values, reason and "first\nsecond\x1b[2J")

    monkeypatch.setattr(end.node.adapter.hosts[1].replies, "send", spoilt)
    with pytest.raises(DriverError) as error:
        end.device.dealloc_pd(99)
    assert error.value.message == "DEALLOC_PD: first?second?[2J"


@pytest.mark.parametrize("place", range(5))
def test_what_the_adapter_has_at_most_can_be_had_and_no_more(place):
    """Work requests, elements of both queues, inline data."""
    world = Network()
    try:
        end = End(world.add(1, max_qp_wr=8, max_sge=4, max_inline_bytes=100))
        caps = [1, 1, 1, 1, 0]
        caps[place] = (8, 8, 4, 4, 100)[place]
        assert end.device.create_qp(end.pd, RC, end.cq, end.cq, None, *caps, True).number
        caps[place] += 1
        with pytest.raises(DriverError, match=f"{caps[place]} is beyond"):
            end.device.create_qp(end.pd, RC, end.cq, end.cq, None, *caps, True)
    finally:
        world.close()
