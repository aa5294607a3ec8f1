"""Two queue pairs of one adapter: RDMA and atomics without packets, and that nothing else differs.

Each case runs both ways, with the same expectations: by the executor, and by packets where the device says
``same_host=0``.  Memory stands in pages that the adapter maps, or is a program's own.
"""

import random
from contextlib import ExitStack
from socket import inet_aton

import pytest
import runtime_pair
from runtime_pair import RemoteOperation, take
from runtime_served import serving
from same_host_pair import BOUND_S, got, post, put, until
from same_host_program import SIZE, make_end

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.runtime import devices
from softhca.transport.loopback import BOUNCE_BYTES
from softhca.wire.route import V4_MAPPED_PREFIX

INVALID_REQUEST, ACCESS_ERROR, RETRY_EXCEEDED = 9, 10, 12  # ibv_wc_status
SEND, WRITE_WITH_IMM = 2, 1
RESET, INIT, RTR, RTS, SQD, ERR = 0, 1, 2, 3, 4, 6  # ibv_qp_state
EVENT_QP_ACCESS_ERR, EVENT_COMM_EST = 3, 4
BOTH_KINDS = [("arena", "arena"), ("own", "arena"), ("arena", "own"), ("own", "own")]


class Pair:
    """Ends that are connected, of drivers that share the ``adapter``."""

    def __init__(self, adapter, ends):
        self.adapter, (self.client, self.server) = adapter, ends
        self.drivers = [end.driver for end in ends]

    def queue_pair(self, end):
        return self.adapter.queue_pairs[end.qp.number]

    def packets(self):
        return sum(self.queue_pair(end).counters.packets_sent for end in (self.client, self.server))

    def done(self, operation, length=8, **rest):
        """The status of one operation of the client's."""
        post(self.client, operation, self.server, length, **rest)
        return take(self.client.cq, 1)[0].status


@pytest.fixture(params=["embedded", "served"])
def way(request, loopback_address):
    """Devices of one adapter by its form: a function of ``same_host`` that gives adapter and drivers."""
    with ExitStack() as undone:

        def made(same_host):
            address = loopback_address()
            if request.param == "embedded":
                devices.add(f"alone=udp:{address}?same_host={same_host}")
                drivers = [registry.open_device("alone")]
                adapter = devices.find("alone").engine.adapter
            else:
                server = undone.enter_context(serving(address, "alone", bool(same_host)))
                for name in ("alone", "again"):
                    devices.add(f"{name}=unix:{server.path}")
                drivers = [registry.open_device(name) for name in ("alone", "again")]
                undone.callback(devices.remove, "again")
                adapter = server.adapter
            undone.callback(devices.remove, "alone")
            for driver in drivers:
                undone.callback(driver.close)
            return adapter, [drivers[0], drivers[-1]]

        yield made


@pytest.fixture
def near(way):
    """A function for a pair by the executor."""
    return lambda kinds=("arena", "arena"), length=SIZE: pair(way(1), kinds, length)


@pytest.fixture(params=["executor", "packets"])
def both(request, way):
    """A function for a pair, by one way and then by the other."""
    by = int(request.param == "executor")
    return lambda kinds=("arena", "arena"), length=SIZE: pair(way(by), kinds, length)


def pair(made, kinds, length):
    adapter, drivers = made
    ends = [make_end(driver, kind, length) for driver, kind in zip(drivers, kinds, strict=True)]
    runtime_pair.join(*ends)
    return Pair(adapter, ends)


@pytest.mark.parametrize("kinds", BOTH_KINDS)
def test_rdma_and_atomics_need_no_packet(near, kinds):
    between = near(kinds)
    client, server = between.client, between.server
    put(client, b"12345678")
    put(server, (10).to_bytes(8, "little"), 64)
    assert between.done(RemoteOperation.WRITE, offset=8) == 0
    assert got(server, 8, 8) == b"12345678"
    for operation, found, left in (
        (RemoteOperation.READ, 10, 10),
        (RemoteOperation.COMPARE_AND_SWAP, 10, 77),
        (RemoteOperation.FETCH_AND_ADD, 77, 87),
    ):
        assert between.done(operation, offset=64) == 0
        assert got(client, 8) == found.to_bytes(8, "little")
        assert got(server, 8, 64) == left.to_bytes(8, "little")
    assert between.packets() == 0
    counters = client.driver.query_counters(qp=client.qp.number)
    assert (counters["same_host_operations"], counters["same_host_bytes"]) == (4, 32)


def test_a_device_that_says_so_sends_packets(way):
    between = pair(way(0), ("arena", "arena"), SIZE)
    assert between.done(RemoteOperation.WRITE) == 0
    assert between.packets() == 2
    assert between.queue_pair(between.client).executor is None


@pytest.mark.parametrize("kinds", BOTH_KINDS)
@pytest.mark.parametrize("length", [1, BOUNCE_BYTES - 1, BOUNCE_BYTES + 1, SIZE])
def test_every_byte_arrives_and_no_other_is_touched(both, kinds, length):
    between = both(kinds, SIZE + 64)
    data = random.Random(length).randbytes(length)
    put(between.client, data)
    assert between.done(RemoteOperation.WRITE, length, offset=9) == 0
    assert got(between.server, length + 18) == bytes(9) + data + bytes(9)
    put(between.client, bytes(length))
    assert between.done(RemoteOperation.READ, length, offset=9) == 0
    assert got(between.client, length) == data


def test_elements_are_gathered_and_scattered(both):
    between = both(("own", "own"))
    client, server = between.client, between.server
    put(client, b"abcdefgh")
    lists = [
        [(client.address + 5, 3, client.key.lkey), (client.address, 2, client.key.lkey)],
        [(client.address + 100, 1, client.key.lkey), (client.address + 200, 4, client.key.lkey)],
    ]
    for operation, elements in zip((RemoteOperation.WRITE, RemoteOperation.READ), lists, strict=True):
        client.qp.post_send(int(operation), 2, 0, 1, server.address, server.key.rkey, 0, 0, 0, 0, 0, elements,
                            None)
        client.qp.ring()
        assert take(client.cq, 1)[0].status == 0
    assert got(server, 6) == b"fghab\0"
    assert (got(client, 2, 100), got(client, 5, 200)) == (b"f\0", b"ghab\0")


def write_inline(between, data):
    """Post a WRITE of ``data`` inline, by a queue pair that has room for it."""
    client, server = between.client, between.server
    client.qp.destroy()
    server.qp.modify({"qp_state": RESET})
    cq = client.cq
    client.qp = client.driver.create_qp(client.pd, runtime_pair.RC, cq, cq, None, 8, 8, 1, 1, 64, True)
    runtime_pair.join(client, server)
    operation, key = int(RemoteOperation.WRITE), server.key.rkey
    client.qp.post_send(operation, 2 | 8, 0, 1, server.address, key, 0, 0, 0, 0, 0, [], data)
    client.qp.ring()


@pytest.mark.parametrize(("flags", "events"), [(2, 0), (6, 1)])
def test_a_write_with_the_solicited_flag_is_an_event_for_threads(near, flags, events):
    """Of the process that has the adapter: beside the completion's."""
    pair = near(("arena", "arena"))
    told = []
    notify = pair.adapter.notify
    pair.adapter.notify = lambda: (told.append(1), notify())
    assert pair.done(RemoteOperation.WRITE, flags=flags) == 0
    assert len(told) == events


def test_inline_data_is_written(both):
    between = both()
    write_inline(between, b"inline")
    assert take(between.client.cq, 1)[0].status == 0
    assert got(between.server, 7) == b"inline\0"


def test_a_write_waits_for_the_send_before_it_that_finds_no_receive(both):
    between = both()
    client, server = between.client, between.server
    put(client, b"new data")
    client.qp.post_send(SEND, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, client.element(8), None)
    post(client, RemoteOperation.WRITE, server, 8, wr_id=2, offset=128)
    until(lambda: between.queue_pair(client).counters.rnr_naks_received, between.drivers)
    assert got(server, 8, 128) == bytes(8)
    assert client.cq.poll(2) == []
    server.qp.post_recv(5, [(server.address + 512, 64, server.key.lkey)])
    assert [(done.wr_id, done.status) for done in take(client.cq, 2)] == [(1, 0), (2, 0)]
    assert got(server, 8, 128) == got(server, 8, 512) == b"new data"
    assert take(server.cq, 1)[0].wr_id == 5


def test_a_send_or_an_immediate_behind_a_write_finds_its_data_there(both):
    between = both()
    client, server = between.client, between.server
    for number in range(60):
        put(client, number.to_bytes(8, "little"))
        server.qp.post_recv(number, [(server.address + 512, 64, server.key.lkey)])
        post(client, RemoteOperation.WRITE, server, 8, wr_id=2 * number)
        client.qp.post_send((SEND, WRITE_WITH_IMM)[number % 2], 2, 7, 2 * number + 1, server.address + 1024,
                            server.key.rkey, 0, 0, 0, 0, 0, client.element(8), None)
        client.qp.ring()
        assert take(server.cq, 1)[0].wr_id == number
        assert got(server, 8) == number.to_bytes(8, "little")
        assert [done.wr_id for done in take(client.cq, 2)] == [2 * number, 2 * number + 1]


def test_what_is_longer_than_a_turn_completes_in_order(both):
    between = both()
    put(between.client, bytes(range(256)) * (SIZE // 256))
    for number in range(9):
        post(between.client, RemoteOperation.WRITE, between.server, SIZE, wr_id=number)
    assert [(done.wr_id, done.status) for done in take(between.client.cq, 9)] == [(n, 0) for n in range(9)]
    assert got(between.server, SIZE) == bytes(range(256)) * (SIZE // 256)


@pytest.mark.parametrize("operation", list(RemoteOperation))
def test_a_wrong_key_is_refused(both, operation):
    between = both()
    client, server = between.client, between.server
    assert between.done(operation, rkey=server.key.rkey ^ 1) == ACCESS_ERROR
    assert client.qp.query()["qp_state"] == server.qp.query()["qp_state"] == ERR
    assert server.driver.next_event(BOUND_S) == (EVENT_QP_ACCESS_ERR, server.qp.number)
    assert between.queue_pair(server).counters.key_refusals == 1


def test_a_key_of_another_domain_is_refused(both):
    between = both()
    other = make_end(between.server.driver, "arena")
    assert between.done(RemoteOperation.READ, rkey=other.key.rkey) == ACCESS_ERROR


def test_beyond_the_end_of_a_region_nothing_is_written(both):
    between = both()
    put(between.client, b"x" * 64)
    assert between.done(RemoteOperation.WRITE, 64, offset=SIZE - 63) == ACCESS_ERROR
    assert got(between.server, 63, SIZE - 63) == bytes(63)


def test_a_key_is_dead_when_deregistering_returns(both):
    between = both()
    put(between.client, b"x" * 8)
    assert between.done(RemoteOperation.WRITE) == 0
    between.server.driver.dereg_mr(between.server.key.handle)
    put(between.server, bytes(8))
    assert between.done(RemoteOperation.WRITE) == ACCESS_ERROR
    assert got(between.server, 8) == bytes(8)


def test_rights_that_a_region_loses_are_lost(both):
    between = both()
    put(between.server, b"secret!!")
    between.server.driver.rereg_mr(between.server.key.handle, 4, 0, 0, 0, 1 | 2)
    assert between.done(RemoteOperation.READ) == ACCESS_ERROR
    assert got(between.client, 8) == bytes(8)


def test_a_queue_pair_that_gives_no_right_refuses(both):
    between = both()
    put(between.server, b"secret!!")
    between.server.qp.modify({"qp_state": RTS, "qp_access_flags": 1 | 2})
    assert between.done(RemoteOperation.READ) == INVALID_REQUEST
    assert got(between.client, 8) == bytes(8)


@pytest.mark.parametrize("operation", [RemoteOperation.READ, RemoteOperation.FETCH_AND_ADD])
def test_a_queue_pair_that_keeps_no_resources_answers_no_reads_and_atomics(both, operation):
    between = both()
    put(between.server, b"secret!!")
    for change in ({"qp_state": SQD}, {"qp_state": SQD, "max_dest_rd_atomic": 0}, {"qp_state": RTS}):
        between.server.qp.modify(change)
    assert between.done(operation) == INVALID_REQUEST
    assert (got(between.client, 8), got(between.server, 8)) == (bytes(8), b"secret!!")


def test_an_atomic_that_is_not_aligned_is_refused(both):
    between = both()
    assert between.done(RemoteOperation.FETCH_AND_ADD, offset=4) == INVALID_REQUEST
    assert got(between.server, 16) == bytes(16)


@pytest.mark.parametrize(("mine", "theirs", "status"), [
    (0x9234, 0xFFFF, RETRY_EXCEEDED), (0x7FFF, 0x7FFF, RETRY_EXCEEDED), (0x7FFF, 0xFFFF, 0),
    (0xFFFF, 0x7FFF, 0),
])  # fmt: skip
def test_p_keys_must_match(both, mine, theirs, status):
    between = both()
    impatient(between.client)
    put(between.client, b"x" * 8)
    between.queue_pair(between.client).pkey = mine
    between.queue_pair(between.server).pkey = theirs
    assert between.done(RemoteOperation.WRITE) == status
    assert got(between.server, 8) == (bytes(8) if status else b"x" * 8)


def impatient(end):
    """Let an end give up soon."""
    for change in ({"qp_state": SQD}, {"qp_state": SQD, "timeout": 1, "retry_cnt": 1}, {"qp_state": RTS}):
        end.qp.modify(change)


@pytest.mark.parametrize("state", [RESET, ERR])
def test_a_queue_pair_that_does_not_receive_takes_nothing(both, state):
    between = both()
    impatient(between.client)
    put(between.client, b"x" * 8)
    between.server.qp.modify({"qp_state": state})
    assert between.done(RemoteOperation.WRITE) == RETRY_EXCEEDED
    assert got(between.server, 8) == bytes(8)


def test_a_queue_pair_that_is_gone_takes_nothing(both):
    between = both()
    impatient(between.client)
    put(between.client, b"x" * 8)
    between.server.qp.destroy()
    assert between.done(RemoteOperation.WRITE) == RETRY_EXCEEDED
    assert got(between.server, 8) == bytes(8)


def test_a_queue_pair_that_is_connected_to_another_is_left_to_packets(near):
    between = near()
    third, fourth = (make_end(between.server.driver, "arena") for _ in range(2))
    runtime_pair.join(third, fourth)
    client = between.queue_pair(between.client)
    client.dest_qp = third.qp.number
    post(between.client, RemoteOperation.WRITE, third, 8)
    until(lambda: client.counters.packets_sent, between.drivers)
    assert client.executor.operations == 0


def test_a_queue_pair_whose_peer_has_another_address_takes_nothing(both, loopback_address):
    between = both()
    impatient(between.client)
    put(between.client, b"x" * 8)
    between.server.qp.modify({"qp_state": RESET})
    connect(between.server.qp, Path(V4_MAPPED_PREFIX + inet_aton(loopback_address()), mtu=5),
            between.client.qp.number, 1, 1, runtime_pair.REMOTE_EVERYTHING, Reliability())
    assert between.done(RemoteOperation.WRITE) == RETRY_EXCEEDED
    assert got(between.server, 8) == bytes(8)


def test_a_peer_in_rtr_is_told_of_the_connection(both):
    between = both()
    client, server = between.client, between.server
    put(client, b"x" * 8)
    attributes = server.qp.query()
    server.qp.modify({"qp_state": RESET})
    server.qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": 15})
    names = ("ah_attr", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer")
    server.qp.modify({"qp_state": RTR, **{name: attributes[name] for name in names}})
    assert between.done(RemoteOperation.WRITE) == 0
    assert server.driver.next_event(BOUND_S) == (EVENT_COMM_EST, server.qp.number)
    assert between.done(RemoteOperation.READ) == 0
    assert server.driver.next_event(0) is None


@pytest.mark.parametrize("inline", [False, True])
def test_while_data_access_is_stopped_a_write_waits(both, inline):
    between = both()
    put(between.client, b"x" * 8)
    between.server.driver.set_data_access(False)
    if inline:
        write_inline(between, b"x" * 8)
    else:
        post(between.client, RemoteOperation.WRITE, between.server, 8)
    for _ in range(100):
        assert between.client.cq.poll(1) == []
    assert got(between.server, 8) == bytes(8)
    between.server.driver.set_data_access(True)
    assert take(between.client.cq, 1)[0].status == 0
    assert got(between.server, 8) == b"x" * 8


def test_a_window_is_reached_by_packets(near):
    between = near()
    number, key = between.server.driver.alloc_mw(between.server.pd, 1)
    assert between.done(RemoteOperation.WRITE, rkey=key) == ACCESS_ERROR
    assert between.packets()
    between.server.driver.dealloc_mw(number)


def test_a_queue_pair_in_reset_has_no_executor(near):
    between = near()
    between.client.qp.modify({"qp_state": RESET})
    assert between.queue_pair(between.client).executor is None


def test_a_port_whose_link_has_failed_carries_nothing(both):
    between = both()
    impatient(between.client)
    put(between.client, b"x" * 8)
    between.adapter.set_link(1, False)
    assert between.done(RemoteOperation.WRITE) == RETRY_EXCEEDED
    assert got(between.server, 8) == bytes(8)
