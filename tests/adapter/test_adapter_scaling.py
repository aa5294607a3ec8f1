"""Work queues and receive-side scaling: which queue of a table a frame reaches, and what is refused."""

import errno
import struct
from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from softhca.adapter.resources import Kind
from softhca.adapter.scaling import Scaling
from softhca.adapter.work_queue_commands import STEPS, destroy
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.testing.ends import RAW, SEND, End, post
from softhca.testing.network import Network
from softhca.wire import ethernet

KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
"""The key of Microsoft's verification suite."""
V4 = control.RX_HASH_SRC_IPV4 | control.RX_HASH_DST_IPV4
V6 = control.RX_HASH_SRC_IPV6 | control.RX_HASH_DST_IPV6
TCP = control.RX_HASH_SRC_PORT_TCP | control.RX_HASH_DST_PORT_TCP
UDP = control.RX_HASH_SRC_PORT_UDP | control.RX_HASH_DST_PORT_UDP
LEFT, RIGHT = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
RESET, RDY, ERR = control.WQS_RESET, control.WQS_RDY, control.WQS_ERR

# source, its port, destination, its port, the hash of the addresses, the hash with the ports: published for
# receive-side scaling in NDIS ("Verifying the RSS Hash Calculation")
VECTORS = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323E8FC2, 0x51CCC178),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xD718262A, 0xC626B0EA),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xD2D0A5DE, 0x5C2B394A),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x82989176, 0xAFC7327F),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5D1809C5, 0x10E828A2),
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2CC18CD5, 0x40207D3D),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0F0C461C, 0xDDE51BBF),
    ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x4B61E985, 0x02D1FEEF),
]


def frame(source, source_port, target, target_port, protocol=ethernet.TCP, macs=RIGHT + LEFT):
    """A frame with a packet of TCP or UDP."""
    source, target = ip_address(source), ip_address(target)
    inner = struct.pack(">HH", source_port, target_port) + bytes(16)
    if source.version == 4:
        front = struct.pack(">BBHIBBH", 0x45, 0, 20 + len(inner), 0, 64, protocol, 0)
        return macs + b"\x08\x00" + front + source.packed + target.packed + inner
    front = struct.pack(">IHBB", 6 << 28, len(inner), protocol, 64)
    return macs + b"\x86\xdd" + front + source.packed + target.packed + inner


def expected(data, key=KEY):
    """The Toeplitz hash as its definition has it: a row of a matrix for each bit that is set."""
    bits, number, result = len(key) * 8, int.from_bytes(key, "big"), 0
    for place in range(len(data) * 8):
        if data[place // 8] & 0x80 >> place % 8:
            result ^= number >> bits - 32 - place & 0xFFFFFFFF
    return result


def hashed(data, fields, key=KEY):
    return Scaling((None,), fields, key).hash(ethernet.frame_key(bytearray(data), 0, len(data)))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector[0])
def test_the_hash_is_the_published_one(vector):
    source, source_port, target, target_port, of_addresses, of_all = vector
    data = frame(source, source_port, target, target_port)
    assert hashed(data, V4 | V6) == of_addresses
    assert hashed(data, V4 | V6 | TCP) == hashed(data, V4 | V6 | TCP | UDP) == of_all
    assert hashed(data, V4 | V6 | UDP) == of_addresses  # it has none of those fields
    assert hashed(frame(source, source_port, target, target_port, ethernet.UDP), V4 | V6 | UDP) == of_all
    addresses = ip_address(source).packed + ip_address(target).packed
    assert expected(addresses) == of_addresses
    assert expected(addresses + struct.pack(">HH", source_port, target_port)) == of_all


@pytest.mark.parametrize("fields", range(1, control.RX_HASH_FIELDS + 1, 6))
def test_every_field_is_hashed_where_the_mask_has_it_alone(fields):
    key = bytes(range(7, 47))
    for source, target, size in (("10.1.2.3", "10.9.8.7", 0), ("fd00::1", "fd00:1:2::9", 2)):
        for protocol, shift in ((ethernet.TCP, 4), (ethernet.UDP, 6), (1, 8)):
            parts = [ip_address(source).packed, ip_address(target).packed, b"\x12\x34", b"\x56\x78"]
            bits = [1 << size, 2 << size, 1 << shift, 2 << shift]
            data = b"".join(part for part, bit in zip(parts, bits, strict=True) if fields & bit)
            made = frame(source, 0x1234, target, 0x5678, protocol)
            assert hashed(made, fields, key) == expected(data, key)


def test_what_is_no_ip_has_the_hash_0():
    assert hashed(RIGHT + LEFT + b"\x88\xb5" + bytes(range(50)), control.RX_HASH_FIELDS) == 0


@pytest.fixture
def ends():
    with Network() as network:
        left, right = End(network.add()), End(network.add())
        yield left, right


def work_queue(end, state=RDY, receives=0, cq=None):
    wq = end.device.create_wq(end.pd, cq or end.cq, 8, 2)
    if state != RESET:
        wq.modify_wq(control.WQ_STATE, RDY)
    if state == ERR:
        wq.modify_wq(control.WQ_STATE, ERR)
    for n in range(receives):
        wq.post_recv(n, [end.sge(2048 * n, 2048)])
    return wq


def scaled(end, queues, fields=V4 | TCP, key=KEY):
    """A queue pair that receives by a table of these queues."""
    table = end.device.create_rwq_ind_table(len(queues).bit_length() - 1, queues)
    return table, end.device.create_rss_qp(end.pd, table, control.RX_HASH_TOEPLITZ, fields, key)


def rule(end, qp, port=1):
    return end.device.create_flow(qp.number, port, control.FLOW_ALL_DEFAULT, 0)


def arrives(end, data):
    end.network.inject(end.node, bytes.fromhex("0800000000000100") + data, end.node.gid, frames=True)


def test_each_frame_reaches_the_queue_that_its_hash_names_and_no_other(ends):
    _, end = ends
    cqs = [end.device.create_cq(16) for _ in range(4)]
    queues = [work_queue(end, receives=2, cq=cq) for cq in cqs]
    _, qp = scaled(end, queues)
    rule(end, qp)
    for source, source_port, target, target_port, _, of_all in VECTORS[:5]:
        data = frame(source, source_port, target, target_port)
        arrives(end, data)
        number = of_all & 3
        (done,) = end.poll(1, cqs[number])
        assert (done.qp_num, done.status, done.byte_len) == (queues[number].number, 0, len(data))
        assert end.memory[2048 * done.wr_id :][: len(data)] == data
        assert not any(cq.poll(1) for cq in cqs)
        queues[number].post_recv(done.wr_id, [end.sge(2048 * done.wr_id, 2048)])


def test_a_queue_may_stand_in_many_entries(ends):
    _, end = ends
    one, other = (work_queue(end, receives=4) for _ in range(2))
    _, qp = scaled(end, [one, one, one, other])
    rule(end, qp)
    for vector in VECTORS[:5]:
        arrives(end, frame(*vector[:4]))
    wanted = [other.number if vector[5] & 3 == 3 else one.number for vector in VECTORS[:5]]
    assert [done.qp_num for done in end.poll(5)] == wanted
    assert len(set(wanted)) == 2


def test_the_frames_of_another_adapter_arrive_by_the_table(ends):
    left, right = ends
    sender = left.qp(RAW)
    for attributes in ({"qp_state": 1, "port_num": 1}, {"qp_state": 2}, {"qp_state": 3}):
        sender.modify(attributes)
    right.device.create_cq(4)
    wq = work_queue(right, receives=1)
    _, qp = scaled(right, [wq], fields=0)
    rule(right, qp)
    left.node.adapter.port.segment.learn(RIGHT, right.node.gid, 0)
    data = frame(*VECTORS[0][:4])
    left.memory[: len(data)] = data
    post(sender, SEND, [left.sge(0, len(data))])
    assert [(done.qp_num, done.byte_len) for done in right.poll(1)] == [(wq.number, len(data))]


def test_a_queue_that_is_not_ready_receives_nothing_and_the_others_go_on(ends):
    _, end = ends
    ready, other = work_queue(end, receives=2), work_queue(end, RESET)
    _, qp = scaled(end, [ready, other], V4)
    rule(end, qp)
    dropped, taken = VECTORS[4], VECTORS[0]
    assert (dropped[4] & 1, taken[4] & 1) == (1, 0)
    arrives(end, frame(*dropped[:4]))
    arrives(end, frame(*taken[:4]))
    assert [done.qp_num for done in end.poll(2)] == [ready.number]
    assert end.device.query_counters(port=1)["drops_state"] == 1
    other.modify_wq(control.WQ_STATE, RDY)
    arrives(end, frame(*dropped[:4]))  # now there is no receive
    assert end.poll(1) == []
    assert end.device.query_counters(qp=other.number)["drops_no_receive"] == 1


def test_the_queue_pair_receives_whatever_its_state_but_in_error(ends):
    _, end = ends
    wq = work_queue(end, receives=4)
    _, qp = scaled(end, [wq], 0)
    rule(end, qp)
    for attributes in ({}, {"qp_state": 1, "port_num": 1}, {"qp_state": 2}):
        if attributes:
            qp.modify(attributes)
        arrives(end, frame(*VECTORS[0][:4]))
        assert len(end.poll(1)) == 1
    qp.modify({"qp_state": 6})
    arrives(end, frame(*VECTORS[0][:4]))
    assert end.poll(1) == []
    qp.modify({"qp_state": 0})
    arrives(end, frame(*VECTORS[0][:4]))
    assert len(end.poll(1)) == 1


def test_a_frame_longer_than_its_receive_ends_the_queue_alone(ends):
    _, end = ends
    short, other = work_queue(end), work_queue(end, receives=1)
    short.post_recv(7, [end.sge(0, 10)])
    short.post_recv(8, [end.sge(0, 2048)])
    _, qp = scaled(end, [other, short], V4)
    rule(end, qp)
    arrives(end, frame(*VECTORS[4][:4]))
    assert [(done.wr_id, done.status) for done in end.poll(2)] == [(7, 1), (8, 5)]
    arrives(end, frame(*VECTORS[0][:4]))
    assert [done.qp_num for done in end.poll(1)] == [other.number]
    short.modify_wq(control.WQ_STATE, RESET)
    short.modify_wq(control.WQ_STATE, RDY)
    short.post_recv(9, [end.sge(0, 2048)])
    arrives(end, frame(*VECTORS[4][:4]))
    assert [(done.wr_id, done.status) for done in end.poll(1)] == [(9, 0)]


def test_a_completion_queue_that_overflows_ends_the_work_queue_with_an_event(ends):
    _, end = ends
    cq = end.device.create_cq(1)
    wq = work_queue(end, receives=3, cq=cq)
    _, qp = scaled(end, [wq], 0)
    rule(end, qp)
    for _ in range(2):
        arrives(end, frame(*VECTORS[0][:4]))
    events = {end.device.next_event(0), end.device.next_event(0)}
    assert events == {(control.EVENT_CQ_ERR, cq.number), (control.EVENT_WQ_FATAL, wq.number)}
    refused(errno.EINVAL, wq.modify_wq, control.WQ_STATE, RDY)


def refused(code, call, *arguments, **fields):
    with pytest.raises(DriverError) as found:
        call(*arguments, **fields)
    assert found.value.errno == code


@pytest.mark.parametrize("state", [RESET, RDY, ERR])
@pytest.mark.parametrize("target", [RESET, RDY, ERR, 3, 99])
def test_the_states_of_a_work_queue(ends, state, target):
    _, end = ends
    wq = work_queue(end, state)
    if (state, target) in STEPS:
        wq.modify_wq(control.WQ_STATE, target)
        state = target
    else:
        refused(errno.EINVAL, wq.modify_wq, control.WQ_STATE, target)
    wq.modify_wq(control.WQ_CURR_STATE, 0, state)
    refused(errno.EINVAL, wq.modify_wq, control.WQ_CURR_STATE, 0, (state + 1) % 3)
    refused(errno.EINVAL, wq.modify_wq, control.WQ_CURR_STATE | control.WQ_STATE, RESET, (state + 1) % 3)
    wq.modify_wq(control.WQ_CURR_STATE | control.WQ_STATE, RESET, state)


def test_the_steps_are_those_of_the_verbs():
    assert set(STEPS) == {
        (RESET, RESET), (RESET, RDY), (RDY, RESET), (RDY, RDY), (RDY, ERR), (ERR, RESET), (ERR, ERR),
    }  # fmt: skip


def test_what_is_posted_waits_flushes_or_is_refused_by_the_state(ends):
    _, end = ends
    wq = work_queue(end, RESET)
    refused(errno.EINVAL, wq.post_recv, 1, [end.sge(0, 10)])
    wq.modify_wq(control.WQ_STATE, RDY)
    refused(errno.EINVAL, wq.post_recv, 1, [end.sge(0, 10)] * 3)
    for n in range(8):
        wq.post_recv(n, [end.sge(0, 10)])
    refused(errno.ENOMEM, wq.post_recv, 8, [end.sge(0, 10)])
    wq.modify_wq(control.WQ_STATE, ERR)
    wq.post_recv(8, [end.sge(0, 10)])
    assert [(done.wr_id, done.status, done.qp_num) for done in end.poll(9)] == [
        (n, 5, wq.number) for n in range(9)
    ]
    wq.modify_wq(control.WQ_STATE, RESET)
    refused(errno.EINVAL, wq.post_send, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [end.sge(0, 10)], None)


def test_a_reset_takes_completions_away_that_were_not_polled(ends):
    _, end = ends
    wq = work_queue(end, receives=2)
    wq.modify_wq(control.WQ_STATE, ERR)
    wq.modify_wq(control.WQ_STATE, RESET)
    assert end.poll(1) == []


def test_who_is_used_stays(ends):
    _, end = ends
    one, other = work_queue(end), work_queue(end)
    table, qp = scaled(end, [one, other])
    for wq in (one, other):
        refused(errno.EBUSY, wq.destroy)
    refused(errno.EBUSY, end.device.destroy_rwq_ind_table, table)
    refused(errno.EBUSY, end.cq.destroy)
    flow = rule(end, qp)
    refused(errno.EBUSY, qp.destroy)
    end.device.destroy_flow(flow)
    qp.destroy()
    end.device.destroy_rwq_ind_table(table)
    for wq in (one, other):
        wq.destroy()
        refused(errno.EINVAL, wq.post_recv, 1, [end.sge(0, 10)])
    end.cq.destroy()


def test_queue_pairs_and_work_queues_never_have_one_number():
    with Network() as network:
        end = End(network.add(max_qp=2, max_wq=2))
        for _ in range(3):
            made = [work_queue(end), end.qp(RAW), work_queue(end), end.qp(RAW)]
            assert len({each.number for each in made}) == 4
            refused(errno.ENOMEM, work_queue, end)
            refused(errno.ENOMEM, end.qp, RAW)
            for each in made:
                each.destroy()


def test_a_number_that_a_work_queue_has_is_passed_over():
    with Network() as network:
        end = End(network.add())
        resources = end.node.adapter.resources
        for make, kind in ((lambda: end.qp(RAW), Kind.QP), (lambda: work_queue(end), Kind.WQ)):
            taken = end.qp(RAW) if kind is Kind.WQ else work_queue(end)
            resources._numbers[kind]._next = taken.number  # as after all others have been given
            assert make().number == taken.number + 1


def test_a_queue_pair_with_a_table_has_no_queue(ends):
    _, end = ends
    _, qp = scaled(end, [work_queue(end)])
    for attributes in ({"qp_state": 1, "port_num": 1}, {"qp_state": 2}, {"qp_state": 3}):
        qp.modify(attributes)
    refused(errno.EINVAL, qp.post_recv, 1, [end.sge(0, 10)])
    refused(errno.EINVAL, post, qp, SEND, [end.sge(0, 60)])
    qp.ring()
    assert set(qp.caps.values()) == {0}
    assert qp.query()["qp_state"] == 3


def test_wrong_tables_and_hashes_are_refused(ends):
    left, end = ends
    wq, device = work_queue(end), end.device
    refused(errno.EINVAL, device.create_rwq_ind_table, 0, [wq, wq])
    refused(errno.EINVAL, device.create_rwq_ind_table, 1, [wq, wq, wq])
    refused(errno.EINVAL, device.create_rwq_ind_table, -1, [])
    most = control.MAX_RWQ_IND_TABLE_ENTRIES
    device.create_rwq_ind_table(most.bit_length() - 1, [wq] * most)
    refused(errno.EINVAL, device.create_rwq_ind_table, most.bit_length(), [wq] * most * 2)
    call = device.session.call
    for runs in ([(wq.number, 1)], [(wq.number, 2), (99, 0)], [(wq.number + 1, 2)], [(wq.number, 3)]):
        refused(errno.EINVAL, call, control.CREATE_RWQ_IND_TABLE, log_ind_tbl_size=1, wqs=runs)
    refused(errno.EINVAL, left.device.create_rwq_ind_table, 0, [wq])  # another host's
    refused(errno.EINVAL, device.create_rwq_ind_table, 0, [end.qp(RAW)])
    table = device.create_rwq_ind_table(1, [wq, wq])
    single = device.create_rwq_ind_table(0, [wq])
    toeplitz = control.RX_HASH_TOEPLITZ
    for code, arguments in (
        (errno.EOPNOTSUPP, (table, 0, V4, KEY)),
        (errno.EOPNOTSUPP, (table, 2, V4, KEY)),
        (errno.EOPNOTSUPP, (table, toeplitz, V4 | 256, KEY)),
        (errno.EOPNOTSUPP, (table, toeplitz, V4 | 1 << 31, KEY)),
        (errno.EINVAL, (table, toeplitz, V4, KEY[1:])),
        (errno.EINVAL, (table, toeplitz, V4, KEY + b"\0")),
        (errno.EINVAL, (table, toeplitz, 0, KEY)),
        (errno.EINVAL, (99, toeplitz, V4, KEY)),
    ):
        refused(code, device.create_rss_qp, end.pd, *arguments)
    refused(errno.EINVAL, device.create_rss_qp, 99, table, toeplitz, V4, KEY)
    device.create_rss_qp(end.pd, single, toeplitz, 0, KEY)


def test_wrong_work_queues_are_refused(ends):
    _, end = ends
    device = end.device
    for max_wr, max_sge in ((0, 1), (1, 0), (-1, 1), (1 << 20, 1), (1, 1 << 20)):
        refused(errno.EINVAL, device.create_wq, end.pd, end.cq, max_wr, max_sge)
    refused(errno.EINVAL, device.create_wq, 99, end.cq, 1, 1)
    wq = work_queue(end)
    refused(errno.EOPNOTSUPP, wq.modify_wq, control.WQ_FLAGS, 0)
    refused(errno.EINVAL, wq.modify_wq, 8, 0)
    refused(errno.EINVAL, wq.modify_wq, 0, 0)
    refused(errno.EINVAL, device.create_flow, wq.number, 1, control.FLOW_ALL_DEFAULT, 0)
    refused(errno.EINVAL, device.session.call, control.QUERY_QP, qp_num=wq.number)
    refused(errno.EINVAL, device.session.call, control.DESTROY_QP, qp_num=wq.number)


def test_a_work_queue_has_entries_and_elements_up_to_the_most_and_one_at_least():
    with Network() as network:
        end = End(network.add(max_qp_wr=64, max_sge=4))
        assert end.device.create_wq(end.pd, end.cq, 64, 4)
        for sizes in ({"max_wr": 0, "max_sge": 1}, {"max_wr": 65, "max_sge": 1}, {"max_wr": 1, "max_sge": 0}):
            with pytest.raises(DriverError, match=r"a work queue has 1…") as caught:
                end.device.session.call(control.CREATE_WQ, pd=end.pd, cq=end.cq.number, **sizes)
            assert caught.value.errno == errno.EINVAL


def test_hosts_pay_for_work_queues_and_tables():
    def costs(refuses=None, **limits):
        """What a host costs: with nothing, with a work queue, with a table of eight entries besides."""
        with Network() as network:
            end = End(network.add(**limits))
            found = [end.node.adapter.resources.cost(1)]
            if refuses == "queue":
                refused(errno.ENOMEM, work_queue, end)
                return found
            wq = work_queue(end)
            found.append(end.node.adapter.resources.cost(1))
            if refuses == "table":
                refused(errno.ENOMEM, end.device.create_rwq_ind_table, 3, [wq] * 8)
                return found
            end.device.create_rwq_ind_table(3, [wq] * 8)
            return [*found, end.node.adapter.resources.cost(1)]

    nothing, queue, table = costs()
    assert nothing < queue
    assert table == queue + 64
    assert costs("queue", max_host_bytes=queue - 1) == [nothing]
    assert costs("table", max_host_bytes=table - 1) == [nothing, queue]
    assert costs(max_host_bytes=table) == [nothing, queue, table]


def test_a_work_queue_that_goes_takes_all_along_that_waits_for_it():
    done = []

    def note(name):
        return lambda *arguments: done.append((name, *arguments))

    queue = SimpleNamespace(flow="flow", owner=3, number=9, close=note("close"))
    adapter = SimpleNamespace(
        resources=SimpleNamespace(remove=note("remove")), timers=SimpleNamespace(disarm=note("disarm")),
        memory_waiters=SimpleNamespace(remove=note("wait no more")),
    )  # fmt: skip
    host = SimpleNamespace(give_slot=note("doorbell"), forget=note("forget"))
    resource = SimpleNamespace(element=queue)
    destroy(adapter, host, resource)
    assert done[0] == ("remove", resource)  # which is refused while a table has it
    assert sorted(done[1:], key=str) == sorted([
        ("close",), ("disarm", "flow"), ("wait no more", "flow"), ("doorbell", 3),
        ("forget", control.WQ_EVENTS, 9),
    ], key=str)  # fmt: skip


def test_a_work_queue_in_error_is_reset_before_it_is_ready_again(ends):
    _, end = ends
    wq = work_queue(end, ERR)
    refused(errno.EINVAL, wq.modify_wq, control.WQ_STATE, RDY)
    wq.modify_wq(control.WQ_STATE, RESET)
    wq.modify_wq(control.WQ_STATE, RDY)


def test_a_hash_that_is_more_than_toeplitz_is_none(ends):
    _, end = ends
    table = end.device.create_rwq_ind_table(0, [work_queue(end)])
    refused(errno.EOPNOTSUPP, end.device.create_rss_qp, end.pd, table, control.RX_HASH_TOEPLITZ | 2, 0, KEY)


def test_where_no_frames_arrive_there_is_none_of_it():
    with Network(link="native") as network:
        end = End(network.add())
        refused(errno.EOPNOTSUPP, end.device.create_wq, end.pd, end.cq, 1, 1)
        refused(errno.EOPNOTSUPP, end.device.session.call, control.CREATE_RWQ_IND_TABLE)
        refused(errno.EOPNOTSUPP, end.device.session.call, control.CREATE_RSS_QP)
        told = end.device.query_device()
        assert {told[name] for name in told if "rwq" in name or "rss" in name or "_wq_" in name} == {0}


def test_a_host_that_leaves_takes_its_queues_tables_and_queue_pairs_along(ends):
    _, end = ends
    queues = [work_queue(end, receives=1) for _ in range(2)]
    _, qp = scaled(end, queues)
    rule(end, qp)
    adapter = end.node.adapter
    end.device.close()
    assert {adapter.resources.count(kind) for kind in Kind} == {0}
    assert len(adapter.port.segment.steering) == 0
