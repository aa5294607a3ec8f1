"""Work queues, tables of them and raw packet QPs that receive by a table, in every kind of adapter."""

import errno
import struct

import pytest

from softhca.driver.errors import DriverError
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.flow import Flow, FlowAttr
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from softhca.verbs.spec import EthSpec
from softhca.verbs.wq import WQ, RwqIndTable, RwqIndTableInitAttr, RxHashConf, WQAttr, WQInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
RIGHT, LEFT = "02:00:00:00:51:02", "02:00:00:00:51:01"
MASK = (
    e.IBV_QP_INIT_ATTR_CREATE_FLAGS | e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_RX_HASH
    | e.IBV_QP_INIT_ATTR_IND_TABLE
)  # fmt: skip
FIELDS = (
    e.IBV_RX_HASH_SRC_IPV4 | e.IBV_RX_HASH_DST_IPV4 | e.IBV_RX_HASH_SRC_PORT_UDP | e.IBV_RX_HASH_DST_PORT_UDP
)
HASH = RxHashConf(e.IBV_RX_HASH_FUNC_TOEPLITZ, len(KEY), KEY, FIELDS)
READY = WQAttr(e.IBV_WQ_ATTR_STATE, e.IBV_WQS_RDY)


@pytest.fixture
def ctx(verbs_pair):
    return verbs_pair.client


def refused(call, code):
    with pytest.raises(PyverbsRDMAError) as found:
        call()
    assert found.value.error_code == code


def queue(ctx, pd, cq, state=e.IBV_WQS_RDY):
    wq = WQ(ctx, WQInitAttr(wq_pd=pd, wq_cq=cq, max_wr=4))
    if state != e.IBV_WQS_RESET:
        wq.modify(WQAttr(e.IBV_WQ_ATTR_STATE, state))
    return wq


def scaled(ctx, pd, table, kind=QPEx, how=HASH, **given):
    return kind(ctx, QPInitAttrEx(**{
        "qp_type": e.IBV_QPT_RAW_PACKET, "comp_mask": MASK, "pd": pd, "hash_conf": how, "ind_table": table,
        **given,
    }))  # fmt: skip


def datagram(source_port):
    """A frame with a datagram of UDP; the hash depends on its port."""
    macs = bytes.fromhex((RIGHT + LEFT).replace(":", ""))
    front = struct.pack(">BBHIBBH4s4s", 0x45, 0, 36, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    return (macs + b"\x08\x00" + front + struct.pack(">HHHH", source_port, 9, 16, 0)).ljust(60, b"\0")


def toeplitz(frame):
    data, number = frame[26:38], int.from_bytes(KEY, "big")
    result = 0
    for place in range(len(data) * 8):
        if data[place // 8] & 0x80 >> place % 8:
            result ^= number >> len(KEY) * 8 - 32 - place & 0xFFFFFFFF
    return result


def test_each_frame_is_received_by_the_queue_of_its_hash(ctx) -> None:
    pd, sends = PD(ctx), CQ(ctx, 8)
    cqs = [CQ(ctx, 8) for _ in range(2)]
    wqs = [queue(ctx, pd, cqs[i % 2]) for i in range(4)]
    memory = MR(pd, 16384, e.IBV_ACCESS_LOCAL_WRITE)
    for i, wq in enumerate(wqs):
        for n in range(4):
            place = memory.buf + 1024 * (4 * i + n)
            wq.post_recv(RecvWR(wr_id=4 * i + n, num_sge=1, sg=[SGE(place, 1024, memory.lkey)]))
    qp = scaled(ctx, pd, RwqIndTable(ctx, RwqIndTableInitAttr(2, wqs)))
    rule = FlowAttr(num_of_specs=1)
    rule.specs.append(EthSpec(dst_mac=RIGHT))
    flow = Flow(qp, rule)
    assert qp.ind_table.wqs == tuple(wqs)
    kind = QPInitAttr(e.IBV_QPT_RAW_PACKET, scq=sends, rcq=sends, cap=QPCap())
    sender = QP(pd, kind, QPAttr(port_num=1))
    data = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
    seen = set()
    for port in range(1000, 1008):
        frame = datagram(port)
        data.write(frame, len(frame))
        sender.post_send(SendWR(num_sge=1, sg=[SGE(data.buf, len(frame), data.lkey)]))
        number = toeplitz(frame) & 3
        done = []
        while not done:
            sends.poll()
            done = cqs[number % 2].poll()[1]
        assert (done[0].qp_num, done[0].status, done[0].byte_len) == (wqs[number].wqn, 0, 60)
        assert memory.read(60, 1024 * done[0].wr_id) == frame
        assert cqs[1 - number % 2].poll()[0] == 0
        seen.add(number)
        wqs[number].post_recv(
            RecvWR(wr_id=done[0].wr_id, num_sge=1,
                   sg=[SGE(memory.buf + 1024 * done[0].wr_id, 1024, memory.lkey)])
        )  # fmt: skip
    assert len(seen) > 1
    for each in (flow, sender, qp):
        each.close()


def test_states_of_a_work_queue(ctx) -> None:
    with PD(ctx) as pd, CQ(ctx, 8) as cq:
        wq = queue(ctx, pd, cq, e.IBV_WQS_RESET)
        wr = RecvWR(wr_id=5, num_sge=0, sg=None)
        bad = RecvWR(num_sge=0, sg=None)
        refused(lambda: wq.post_recv(wr, bad), errno.EINVAL)
        assert bad.wr_id == 5
        refused(lambda: wq.modify(WQAttr(e.IBV_WQ_ATTR_STATE, e.IBV_WQS_ERR)), errno.EINVAL)
        wq.modify(READY)
        wq.post_recv(wr)
        wq.modify(WQAttr(3, e.IBV_WQS_ERR, e.IBV_WQS_RDY))
        n, done = cq.poll()
        assert (n, done[0].wr_id, done[0].status, done[0].qp_num) == (1, 5, e.IBV_WC_WR_FLUSH_ERR, wq.wqn)
        refused(lambda: wq.modify(READY), errno.EINVAL)
        refused(lambda: wq.modify(WQAttr(3, e.IBV_WQS_RESET, e.IBV_WQS_RDY)), errno.EINVAL)
        refused(lambda: wq.modify(WQAttr(4, flags=1, flags_mask=1)), errno.EOPNOTSUPP)
        refused(lambda: wq.modify(WQAttr(8)), errno.EINVAL)
        refused(lambda: wq.modify(WQAttr(0)), errno.EINVAL)
        wq.modify(WQAttr(e.IBV_WQ_ATTR_STATE, e.IBV_WQS_RESET))
        wq.modify(READY)
        wq.close()
        with pytest.raises(PyverbsUserError):
            wq.post_recv(wr)


def test_who_is_used_is_closed_with_what_uses_it(ctx) -> None:
    with PD(ctx) as pd, CQ(ctx, 8) as cq:
        wqs = [queue(ctx, pd, cq) for _ in range(2)]
        table = RwqIndTable(ctx, RwqIndTableInitAttr(1, wqs))
        qp = scaled(ctx, pd, table)
        flow = Flow(qp, FlowAttr(flow_type=e.IBV_FLOW_ATTR_ALL_DEFAULT))
        for busy in (wqs[0].handle.destroy, lambda: ctx._driver.destroy_rwq_ind_table(table.number)):
            with pytest.raises(DriverError) as found:
                busy()
            assert found.value.errno == errno.EBUSY
        wqs[0].close()
        assert not any(each.is_open for each in (flow, qp, table))
        assert wqs[1].is_open


def test_a_qp_with_a_table_has_no_queue(ctx) -> None:
    with PD(ctx) as pd, CQ(ctx, 8) as cq:
        table = RwqIndTable(ctx, RwqIndTableInitAttr(0, [queue(ctx, pd, cq)]))
        qp = scaled(ctx, pd, table, QP)
        qp.to_rts(QPAttr(port_num=1))
        refused(lambda: qp.post_recv(RecvWR(num_sge=0, sg=None)), errno.EINVAL)
        refused(lambda: qp.post_send(SendWR(num_sge=1, sg=[SGE(0, 0, 0)])), errno.EINVAL)
        attr, init = qp.query(e.IBV_QP_STATE)
        assert attr.qp_state == e.IBV_QPS_RTS
        assert init.cap.as_dict() == dict.fromkeys(init.cap.as_dict(), 0)


def test_what_cannot_be_is_refused(ctx) -> None:
    with PD(ctx) as pd, CQ(ctx, 8) as cq:
        wq = queue(ctx, pd, cq)
        for given, code in (
            ({"wq_pd": None}, errno.EINVAL), ({"wq_cq": None}, errno.EINVAL), ({"wq_type": 1}, errno.EINVAL),
            ({"comp_mask": 2}, errno.EINVAL), ({"max_wr": 0}, errno.EINVAL),
            ({"max_sge": 1 << 20}, errno.EINVAL),
            ({"comp_mask": 1, "create_flags": e.IBV_WQ_FLAGS_SCATTER_FCS}, errno.EOPNOTSUPP),
        ):  # fmt: skip
            attr = WQInitAttr(**{"wq_pd": pd, "wq_cq": cq, **given})
            refused(lambda attr=attr: WQ(ctx, attr), code)
        for attr in (
            RwqIndTableInitAttr(1, [wq]), RwqIndTableInitAttr(1, [wq] * 3), RwqIndTableInitAttr(0, [wq], 1),
            RwqIndTableInitAttr(12, [wq] * 4096), RwqIndTableInitAttr(),
        ):  # fmt: skip
            refused(lambda attr=attr: RwqIndTable(ctx, attr), errno.EINVAL)
        table = RwqIndTable(ctx, RwqIndTableInitAttr(1, [wq, wq]))
        for how, code in (
            (RxHashConf(0, 40, KEY, FIELDS), errno.EOPNOTSUPP),
            (RxHashConf(1, 40, KEY, FIELDS | 1 << 8), errno.EOPNOTSUPP),
            (RxHashConf(1, 40, KEY, FIELDS | 1 << 31), errno.EOPNOTSUPP),
            (RxHashConf(1, 39, KEY[1:], FIELDS), errno.EINVAL),
            (RxHashConf(1, 41, KEY, FIELDS), errno.EINVAL),
            (RxHashConf(1, 40, KEY, 0), errno.EINVAL),
            (None, errno.EINVAL),
        ):
            refused(lambda how=how: scaled(ctx, pd, table, how=how), code)
        no_table = int(MASK & ~e.IBV_QP_INIT_ATTR_IND_TABLE)
        for given, code in (
            ({"qp_type": e.IBV_QPT_UD, "scq": cq, "rcq": cq}, errno.EOPNOTSUPP),
            ({"comp_mask": no_table}, errno.EINVAL), ({"ind_table": None}, errno.EINVAL),
            ({"create_flags": e.IBV_QP_CREATE_SCATTER_FCS}, errno.EOPNOTSUPP),
            ({"comp_mask": MASK | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS}, errno.EOPNOTSUPP),
            ({"cap": QPCap(0, 1, 0, 0)}, errno.EINVAL), ({"cap": QPCap(1, 0, 0, 0)}, errno.EINVAL),
        ):  # fmt: skip
            refused(lambda given=given: scaled(ctx, pd, table, **given), code)


def test_the_device_says_what_it_scales_by(ctx) -> None:
    attr = ctx.query_device_ex()
    caps = attr.rss_caps
    assert caps.supported_qpts == 1 << e.IBV_QPT_RAW_PACKET
    assert (caps.rx_hash_function, caps.rx_hash_fields_mask) == (e.IBV_RX_HASH_FUNC_TOEPLITZ, 255)
    assert (caps.max_rwq_indirection_tables, caps.max_rwq_indirection_table_size) == (4096, 2048)
    assert (attr.max_wq_type_rq, attr.raw_packet_caps) == (16384, 0)
