"""What commands refuse, and how the text of the refusal begins."""

import errno

from softhca.queues import control_fields as control
from softhca.queues.states import ERR, INIT, RESET, RTR, RTS, SQD
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, RC, UC, UD

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
TO_RTS_OF_UD = [
    {"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qkey": 1},
    {"qp_state": RTR},
    {"qp_state": RTS, "sq_psn": 0},
]


def without(attributes, *names):
    return {name: value for name, value in attributes.items() if name not in names}


def path(**changes):
    return {**TO_RTR, "ah_attr": {**TO_RTR["ah_attr"], **changes}}


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
    (RC, [TO_INIT], path(port_num=2), "port_num = 2: the path begins at port 1"),
    (RC, [TO_INIT], path(sl=16), "sl, flow_label: "),
    (RC, [TO_INIT], path(dgid=bytes(16)), "dgid: on RoCE"),
    (RC, [TO_INIT], path(is_global=0), "is_global, dgid: on RoCE"),
    (RC, [TO_INIT], path(sgid_index=7), "sgid_index = 7: there is no such GID"),
    (RC, [TO_INIT], {**TO_RTR, "alt_ah_attr": TO_RTR["ah_attr"]}, "alt_port_num = 0: "),
    (RC, [], {**TO_INIT, "pkey_index": 4}, "pkey_index = 4: the table has 1 P_Keys"),
    (RC, [], {**TO_INIT, "port_num": 2}, "port_num = 2: the adapter has ports 1…1"),
    (UD, TO_RTS_OF_UD, {"rate_limit": 7}, "rate_limit = 7: the adapter has 0 and 8 … 100000000 kbit/s"),
    (UD, TO_RTS_OF_UD, {"rate_limit": 0, "max_burst_sz": 1}, "max_burst_sz = 1: without rate_limit"),
    (UD, TO_RTS_OF_UD, {"rate_limit": 0, "typical_pkt_sz": 2}, "typical_pkt_sz = 2: without rate_limit"),
    (UD, TO_RTS_OF_UD, {"qp_state": SQD, "rate_limit": 9}, "rate_limit cannot be given for RTS to SQD of UD"),
    (RC, [TO_INIT, {"qp_state": ERR}], {"qp_state": ERR, "timeout": 1},
     "timeout cannot be given for ERR to ERR"),
    (UD, [{**without(TO_INIT, "qp_access_flags"), "qkey": 1}, {"qp_state": RTR}],
     {"qp_state": RTS, "sq_psn": 0, "cur_qp_state": RESET},
     "cur_qp_state = RESET, but the queue pair is in RTR"),
]  # fmt: skip

RING = {"entries": 1, "body_bytes": 48, "frames": [(0, 0)]}

# command, its fields, errno, what the text says
COMMANDS = [
    (control.QUERY_PORT, {"port_num": 9}, errno.EINVAL, "port_num = 9: the adapter has ports 1…1"),
    (control.QUERY_GID, {"port_num": 1, "index": 9999}, errno.EINVAL, "index = 9999: the GID table"),
    (control.QUERY_PKEY, {"port_num": 1, "index": 9999}, errno.EINVAL, "index = 9999: the P_Key table"),
    (control.QUERY_COUNTERS, {"scope": 9}, errno.EINVAL, "scope: "),
    (control.DEALLOC_PD, {"pd": 99}, errno.EINVAL, "pd = 99: there is no such PD"),
    (control.DESTROY_CQ, {"cq": 99}, errno.EINVAL, "cq = 99: there is no such CQ"),
    (control.DESTROY_QP, {"qp_num": 99}, errno.EINVAL, "qp_num = 99: there is no such QP"),
    (control.DESTROY_SRQ, {"srq": 99}, errno.EINVAL, "srq = 99: there is no such SRQ"),
    (control.DESTROY_AH, {"ah": 99}, errno.EINVAL, "ah = 99: there is no such AH"),
    (control.DEREG_MR, {"lkey": 99}, errno.EINVAL, "lkey = 99: there is no such MR"),
    (control.DEALLOC_MW, {"mw": 99}, errno.EINVAL, "mw = 99: there is no such MW"),
    (control.CREATE_CQ, {"comp_vector": 1, **RING}, errno.EINVAL, "comp_vector, flags: "),
    (control.CREATE_CQ, {"channel": 1, **RING}, errno.EBADF, "channel = 1: "),
    (control.CREATE_CQ, {**RING, "entries": 0}, errno.EINVAL, "entries = 0: "),
    (control.CREATE_QP, {"qp_type": 99}, errno.EOPNOTSUPP, "qp_type = 99"),
    (control.CREATE_QP, {"qp_type": RC, "xrcd": 1}, errno.EINVAL, "xrcd: "),
    (control.CREATE_QP, {"qp_type": RC, "create_flags": 1}, errno.EOPNOTSUPP, "create_flags: "),
    (control.OPEN_XRCD, {"flags": 8}, errno.EINVAL, "flags = 0x8"),
    (control.CREATE_SRQ, {"pd": 1, "max_wr": 1, "max_sge": 1, "srq_type": 2}, errno.EOPNOTSUPP, "srq_type ="),
    (control.CREATE_SRQ, {"pd": 1, "max_wr": 1, "max_sge": 1, "xrcd": 1}, errno.EINVAL, "cq, xrcd: "),
    (control.CREATE_QP, {"qp_type": RC, "create_flags": control.CREATE_TELLS_LOSSES}, errno.EINVAL,
     "create_flags: only UC"),
    (control.CREATE_QP, {"qp_type": RC, "max_send_wr": 1 << 30}, errno.EINVAL, "max_send_wr = 1073741824"),
    (control.CREATE_SRQ, {"pd": 1, "max_wr": 0}, errno.EINVAL, "max_wr, max_sge: expected 1"),
    (control.CREATE_AH, {"pd": 1, "is_global": 1}, errno.EINVAL, "dgid: on RoCE"),
    (control.ALLOC_MW, {"pd": 1, "type": 3}, errno.EINVAL, "type = 3: "),
    (control.ALLOC_FAST_MR, {"pd": 1, "max_pages": 0}, errno.EINVAL, "max_pages = 0: "),
    (control.SET_DATA_ACCESS, {"allowed": 2}, errno.EINVAL, "allowed = 2"),
    (control.REG_MR, {"pd": 1, "length": 1 << 62}, errno.EINVAL, "length: "),
    (control.REG_MR, {"pd": 1, "access": 64, "length": 1 << 62}, errno.EINVAL, "length: "),
    (control.REG_MR, {"pd": 1, "access": 64, "length": 0}, errno.EINVAL, "length = 0: "),
    (control.REG_MR, {"pd": 1, "access": 64, "length": 2**64 - 1, "va": 1}, errno.EINVAL, "length: "),
    (control.REGISTER_AGENT, {"port_num": 1}, errno.EINVAL, "mgmt_class = 0: "),
]  # fmt: skip
