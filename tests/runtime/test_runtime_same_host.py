"""Same-host paths end to end: who may have them, what goes through them, and that nothing else differs."""

import mmap
import os
import random
import signal
import socket
import threading

import pytest
import runtime_pair
from runtime_pair import RemoteOperation, lets_others_run, take
from runtime_programs import Program
from same_host_pair import BOUND_S, got, has_path, packets_of, post, put, queue_pair_of, until
from same_host_program import SIZE, make_end

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.machine import primitives
from softhca.memory.shared_layout import DIRECTORY_BYTES, READER_HEADER_BYTES, REVOKED, RING_CLOSED
from softhca.queues.layout import RING_HEAD_AT, RING_TAIL_AT
from softhca.runtime import devices, messages, same_host_address, same_host_limits, same_host_peers
from softhca.runtime.clock import now_ns
from softhca.transport.same_host import CHUNK_BYTES

ACCESS_ERROR, RETRY_EXCEEDED, FLUSHED, INVALID_REQUEST = 10, 12, 5, 9  # ibv_wc_status
SEND = 2
RTS, SQD, ERR = 3, 4, 6
EVENT_QP_ACCESS_ERR, EVENT_COMM_EST = 3, 4

pytestmark = pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")


@pytest.fixture
def two(loopback_address):
    """Two devices of this process that allow it, and a function for ends that are connected and have met."""
    names = ("left", "right")
    devices.add(",".join(f"{name}=udp:{loopback_address()}?same_host=1" for name in names))
    drivers = [registry.open_device(name) for name in names]

    def ends(kinds=("arena", "arena"), length=SIZE):
        made = [make_end(driver, kind, length) for driver, kind in zip(drivers, kinds, strict=True)]
        runtime_pair.join(*made)
        until(lambda: all(map(has_path, made)), drivers)
        return made

    yield ends
    for driver in drivers:
        driver.close()
    for name in names:
        devices.remove(name)


SIGNALED, SOLICITED = 2, 4


def test_a_write_with_the_solicited_flag_has_who_sleeps_at_the_peer_look(two):
    """Nothing else tells it: neither a packet nor a completion."""
    client, server = two()
    put(client, b"12345678")
    waiter = threading.Thread(
        target=server.driver.wait_for, args=(lambda: got(server, 8) == b"12345678",), daemon=True
    )
    waiter.start()
    engine = devices.find(server.driver.name).engine
    until(lambda: engine.progress._leading and engine.same_host._sleepers, [client.driver])
    before = packets_of(client)
    post(client, RemoteOperation.WRITE, server, 8, flags=SIGNALED | SOLICITED)
    waiter.join(BOUND_S)
    assert not waiter.is_alive()
    assert packets_of(client) == before


@pytest.mark.parametrize(("operation", "flags", "events"), [
    (RemoteOperation.WRITE, SIGNALED, 0),
    (RemoteOperation.WRITE, SIGNALED | SOLICITED, 1),
    (RemoteOperation.READ, SIGNALED | SOLICITED, 0),
    (RemoteOperation.FETCH_AND_ADD, SIGNALED | SOLICITED, 0),
])  # fmt: skip
def test_only_a_write_with_the_solicited_flag_is_an_event_for_threads(two, operation, flags, events):
    client, server = two()
    loop = devices.find(server.driver.name).engine.loop
    with loop.lock:  # no other thread gives it rounds
        before = loop.sleeper.events
        post(client, operation, server, 8, flags=flags)
        assert take(client.cq, 1)[0].status == 0
        loop.progress(loop.clock())
        assert loop.sleeper.events == before + events
        loop.progress(loop.clock())
        assert loop.sleeper.events == before + events


def switched(*ends):
    """The engines of ends whose packets go through rings from now on."""
    engines = [devices.find(end.driver.name).engine for end in ends]
    for engine in engines:
        with engine.loop.lock:
            while engine.same_host.ports[1].is_switching:
                engine.same_host.poll()
    return engines


@pytest.mark.parametrize("kinds", [("arena", "arena"), ("own", "arena"), ("arena", "own")])
def test_rdma_and_atomics_need_no_packet(two, kinds):
    client, server = two(kinds)
    put(client, b"12345678")
    put(server, (10).to_bytes(8, "little"), 64)
    before = packets_of(client), packets_of(server)
    post(client, RemoteOperation.WRITE, server, 8, offset=8)
    assert take(client.cq, 1)[0].status == 0
    assert got(server, 8, 8) == b"12345678"
    for operation, found, left in (
        (RemoteOperation.READ, 10, 10),
        (RemoteOperation.COMPARE_AND_SWAP, 10, 77),
        (RemoteOperation.FETCH_AND_ADD, 77, 87),
    ):
        post(client, operation, server, 8, offset=64)
        assert take(client.cq, 1)[0].status == 0
        assert got(client, 8) == found.to_bytes(8, "little")
        assert got(server, 8, 64) == left.to_bytes(8, "little")
    assert (packets_of(client), packets_of(server)) == before
    counters = client.driver.query_counters(qp=client.qp.number)
    assert (counters["same_host_operations"], counters["same_host_bytes"]) == (4, 32)


def test_polling_in_vain_keeps_the_interpreter_lock(two):
    """Else a thread that polls starves the one that serves its peer (see `softhca.machine.processor`)."""
    client, _ = two()
    engine = devices.find(client.driver.name).engine
    assert not lets_others_run(lambda: client.cq.poll(1), engine)


def test_messages_between_peers_go_through_their_rings(two):
    client, server = two()
    engines = switched(client, server)
    before = [engine.link.counters()["bursts_sent"] for engine in engines]
    for number in range(20):
        server.qp.post_recv(number, [(server.address, 1000, server.key.lkey)])
        client.qp.post_send(2, 2, 0, number, 0, 0, 0, 0, 0, 0, 0, client.element(1000), None)
        client.qp.ring()
        while not client.cq.poll(1):
            server.driver.progress()
        assert [done.wr_id for done in server.cq.poll(2)] == [number]
    assert [engine.link.counters()["bursts_sent"] for engine in engines] == before
    assert engines[1].same_host.receivers[0].bursts == 20


def test_what_is_longer_than_a_turn_arrives_whole(two):
    client, server = two()
    put(client, bytes(range(256)) * (SIZE // 256))
    for number in range(9):  # more than TURN_BYTES
        post(client, RemoteOperation.WRITE, server, SIZE, wr_id=number)
    assert [(done.wr_id, done.status) for done in take(client.cq, 9)] == [(n, 0) for n in range(9)]
    assert got(server, SIZE) == bytes(range(256)) * (SIZE // 256)


@pytest.mark.parametrize("length", [CHUNK_BYTES + 1, 5 * CHUNK_BYTES // 2])
def test_what_is_longer_than_a_chunk_is_all_there_when_it_completes(two, length):
    client, server = two(length=length)
    data = random.Random(length).randbytes(length)
    put(client, data)
    post(client, RemoteOperation.WRITE, server, length)
    assert take(client.cq, 1)[0].status == 0
    assert got(server, length) == data
    put(client, bytes(length))
    post(client, RemoteOperation.READ, server, length)
    assert take(client.cq, 1)[0].status == 0
    assert got(client, length) == data
    assert queue_pair_of(client).executor.operations == 2


def test_a_write_waits_for_the_send_before_it_that_finds_no_receive(two):
    client, server = two()
    put(client, b"new data")
    client.qp.post_send(SEND, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, client.element(8), None)
    post(client, RemoteOperation.WRITE, server, 8, wr_id=2, offset=128)
    until(lambda: queue_pair_of(client).counters.rnr_naks_received, (client.driver, server.driver))
    assert got(server, 8, 128) == bytes(8)
    assert client.cq.poll(2) == []
    server.qp.post_recv(5, [(server.address + 512, 64, server.key.lkey)])
    assert [(done.wr_id, done.status) for done in take(client.cq, 2)] == [(1, 0), (2, 0)]
    assert got(server, 8, 128) == got(server, 8, 512) == b"new data"
    assert take(server.cq, 1)[0].wr_id == 5


def test_a_send_behind_a_write_finds_its_data_there(two):
    client, server = two()
    for number in range(200):
        put(client, number.to_bytes(8, "little"))
        server.qp.post_recv(number, [(server.address + 512, 64, server.key.lkey)])
        post(client, RemoteOperation.WRITE, server, 8, wr_id=2 * number)
        client.qp.post_send(SEND, 2, 0, 2 * number + 1, 0, 0, 0, 0, 0, 0, 0, client.element(8), None)
        client.qp.ring()
        assert take(server.cq, 1)[0].wr_id == number
        assert got(server, 8) == number.to_bytes(8, "little")
        assert [done.wr_id for done in take(client.cq, 2)] == [2 * number, 2 * number + 1]


def test_a_write_whose_claim_was_revoked_is_done_again(two):
    client, server = two()
    put(client, b"x" * 8)
    path = queue_pair_of(client).executor.path
    with devices.find(client.driver.name).engine.loop.lock:
        primitives.store64(path.reader + REVOKED, path.epoch + 1)  # of the next epoch
        epoch = path.epoch
        post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == 0
    assert got(server, 8) == b"x" * 8
    assert path.epoch == epoch + 4
    assert packets_of(client) == 0


@pytest.mark.parametrize("operation", [RemoteOperation.FETCH_AND_ADD, RemoteOperation.COMPARE_AND_SWAP])
@pytest.mark.parametrize("behind", [False, True])
def test_an_atomic_whose_claim_was_revoked_fails_and_is_not_done_again(two, operation, behind):
    client, server = two()
    put(server, (10).to_bytes(8, "little"))
    path = queue_pair_of(client).executor.path
    server.qp.post_recv(0, [(server.address + 512, 64, server.key.lkey)])
    with devices.find(client.driver.name).engine.loop.lock:
        if behind:  # one that goes by packets is under way
            client.qp.post_send(SEND, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, client.element(8), None)
        primitives.store64(path.reader + REVOKED, path.epoch + 1)
        post(client, operation, server, 8)
    assert [done.status for done in take(client.cq, 1 + behind)] == [0] * behind + [RETRY_EXCEEDED]
    assert client.qp.query()["qp_state"] == ERR
    assert got(server, 8) == (20 if operation == RemoteOperation.FETCH_AND_ADD else 77).to_bytes(8, "little")


def test_a_queue_pair_that_changes_has_the_path_that_there_is_now(two):
    client, server = two()
    engine = devices.find(client.driver.name).engine
    former = queue_pair_of(client).executor.path
    with engine.loop.lock:
        engine.same_host._drop(engine.same_host.ports[1].first._outbound[former.gid])
    client.qp.modify({"qp_state": RTS})
    until(lambda: has_path(client), (client.driver, server.driver))
    assert queue_pair_of(client).executor.path is not former
    packets = packets_of(client)
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == 0
    assert packets_of(client) == packets


def test_what_a_peer_that_goes_has_left_in_its_ring_arrives(two):
    """A disconnect may be the last that it sends."""
    client, server = two()
    switched(client, server)
    server.qp.post_recv(1, [(server.address, 1000, server.key.lkey)])
    engine = devices.find(server.driver.name).engine
    with engine.loop.lock:  # it does nothing meanwhile
        client.qp.post_send(SEND, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, client.element(1000), None)
        client.qp.ring()
        client.driver.close()
        while engine.same_host.receivers:
            engine.same_host.poll()
    assert [done.wr_id for done in take(server.cq, 1)] == [1]


@pytest.mark.parametrize("word", [READER_HEADER_BYTES + RING_TAIL_AT, READER_HEADER_BYTES + RING_HEAD_AT])
def test_a_ring_that_breaks_ends_no_connection(two, word):
    """Its tail, which the receiver reads, or its head, which the sender does."""
    client, server = two()
    engines = switched(client, server)
    reader = queue_pair_of(client).executor.path.reader
    for number in range(4):
        server.qp.post_recv(number, [(server.address, 1000, server.key.lkey)])
        client.qp.post_send(SEND, 2, 0, number, 0, 0, 0, 0, 0, 0, 0, client.element(1000), None)
        if number == 1:
            with engines[1].loop.lock:
                primitives.store64(reader + word, 1 << 40)
                engines[1].loop.progress(now_ns())
        client.qp.ring()
        assert take(client.cq, 1)[0].status == 0
        assert take(server.cq, 1)[0].wr_id == number
    assert primitives.load64(reader + RING_CLOSED) == 1
    assert engines[0].link.counters()["bursts_sent"]


def test_no_descriptor_that_crosses_gives_more_than_its_own_reader(two):
    """Who is given a directory and a reader cannot write the directory, nor make anybody wait."""
    client, _ = two()
    shared = devices.find(client.driver.name).engine.same_host
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.settimeout(BOUND_S)
        caller.connect(same_host_address.socket_name(shared.ports[1].first.gid))
        messages.send(caller, {"connect": same_host_peers.VERSION, "gid": (b"x" * 16).hex()})
        until(lambda: len(shared.sharing.directory.readers) == 2, [client.driver])
        message, (directory, reader) = messages.receive(caller)
    assert message["reader"] == same_host_peers.VERSION
    for descriptor, kind in ((directory, "directory"), (reader, "reader")):
        assert os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"/memfd:softhca-{kind}")
    with pytest.raises(PermissionError):
        mmap.mmap(directory, DIRECTORY_BYTES)
    messages.close_all((directory, reader))


@pytest.mark.parametrize("operation", list(RemoteOperation))
def test_a_wrong_key_is_refused_as_over_the_wire(two, operation):
    client, server = two()
    post(client, operation, server, 8, rkey=server.key.rkey ^ 1)
    assert take(client.cq, 1)[0].status == ACCESS_ERROR
    assert client.qp.query()["qp_state"] == server.qp.query()["qp_state"] == ERR
    assert server.driver.next_event(BOUND_S) == (EVENT_QP_ACCESS_ERR, server.qp.number)
    assert queue_pair_of(server).counters.key_refusals == 1


def test_beyond_the_end_of_a_region_nothing_is_written(two):
    client, server = two()
    put(client, b"x" * 64)
    post(client, RemoteOperation.WRITE, server, 64, offset=SIZE - 63)
    assert take(client.cq, 1)[0].status == ACCESS_ERROR
    assert got(server, 63, SIZE - 63) == bytes(63)


def test_a_key_is_dead_when_deregistering_returns(two):
    client, server = two()
    put(client, b"x" * 8)
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == 0
    server.driver.dereg_mr(server.key.handle)
    put(server, bytes(8))
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == ACCESS_ERROR
    assert got(server, 8) == bytes(8)


def test_rights_that_a_region_or_a_queue_pair_loses_are_lost(two):
    client, server = two()
    put(server, b"secret!!")
    server.driver.rereg_mr(server.key.handle, 4, 0, 0, 0, 1 | 2)  # local and remote write only
    post(client, RemoteOperation.READ, server, 8)
    assert take(client.cq, 1)[0].status == ACCESS_ERROR
    assert got(client, 8) == bytes(8)


def test_a_queue_pair_that_gives_no_right_refuses(two):
    client, server = two()
    put(server, b"secret!!")
    server.qp.modify({"qp_state": RTS, "qp_access_flags": 1 | 2})
    post(client, RemoteOperation.READ, server, 8)
    assert take(client.cq, 1)[0].status == INVALID_REQUEST
    assert got(client, 8) == bytes(8)


def test_p_keys_that_do_not_match_are_no_way(two):
    client, server = two()
    put(client, b"x" * 8)
    queue_pair_of(client).pkey = 0x9234
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == RETRY_EXCEEDED
    assert got(server, 8) == bytes(8)


def test_a_limited_member_reaches_a_full_one_and_no_other_limited_one(two):
    client, server = two()
    for mine, status in ((0x7FFF, 0), (0xFFFF, 0)):
        queue_pair_of(client).pkey = mine
        post(client, RemoteOperation.WRITE, server, 8)
        assert take(client.cq, 1)[0].status == status
    assert queue_pair_of(client).executor.operations == 2
    server.qp.modify({"qp_state": RTS})
    queue_pair_of(client).pkey = queue_pair_of(server).pkey = 0x7FFF
    server.qp.modify({"qp_state": RTS})  # which tells the directory
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == RETRY_EXCEEDED


@pytest.mark.parametrize("operation", [RemoteOperation.READ, RemoteOperation.FETCH_AND_ADD])
def test_a_queue_pair_that_keeps_no_resources_answers_no_reads_and_atomics(two, operation):
    client, server = two()
    put(server, b"secret!!")
    server.qp.modify({"qp_state": SQD})
    server.qp.modify({"qp_state": SQD, "max_dest_rd_atomic": 0})
    server.qp.modify({"qp_state": RTS})
    post(client, operation, server, 8)
    assert take(client.cq, 1)[0].status == INVALID_REQUEST
    assert (got(client, 8), got(server, 8)) == (bytes(8), b"secret!!")


@pytest.mark.parametrize("operation", [RemoteOperation.READ, RemoteOperation.FETCH_AND_ADD])
def test_a_queue_pair_that_may_have_none_outstanding_asks_for_none(two, operation):
    client, server = two()
    client.qp.modify({"qp_state": SQD})
    client.qp.modify({"qp_state": SQD, "max_rd_atomic": 0})
    client.qp.modify({"qp_state": RTS})
    post(client, operation, server, 8)
    assert take(client.cq, 1)[0].status == 2  # local queue pair operation error


def test_a_peer_in_rtr_is_told_of_the_connection_by_a_packet_and_then_left_alone(two):
    client, server = two()
    put(client, b"x" * 8)
    attributes = server.qp.query()
    server.qp.modify({"qp_state": 0})
    server.qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 15})
    names = ("ah_attr", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer")
    server.qp.modify({"qp_state": 2, **{name: attributes[name] for name in names}})
    packets = packets_of(client)
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == 0
    assert packets_of(client) == packets + 1
    assert server.driver.next_event(BOUND_S) == (EVENT_COMM_EST, server.qp.number)
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == 0
    assert packets_of(client) == packets + 1


def test_a_queue_pair_in_error_takes_nothing(two):
    client, server = two()
    put(client, b"x" * 8)
    server.qp.modify({"qp_state": ERR})
    client.qp.modify({"qp_state": SQD})
    client.qp.modify({"qp_state": SQD, "timeout": 1, "retry_cnt": 1})
    client.qp.modify({"qp_state": RTS})
    post(client, RemoteOperation.WRITE, server, 8)
    assert take(client.cq, 1)[0].status == RETRY_EXCEEDED
    assert got(server, 8) == bytes(8)


def test_while_data_access_is_stopped_a_write_waits(two):
    client, server = two()
    put(client, b"x" * 8)
    server.driver.set_data_access(False)
    post(client, RemoteOperation.WRITE, server, 8)
    until(lambda: packets_of(client), (client.driver, server.driver))
    assert got(server, 8) == bytes(8)
    assert client.cq.poll(1) == []
    server.driver.set_data_access(True)
    assert take(client.cq, 1)[0].status == 0
    assert got(server, 8) == b"x" * 8


def test_a_queue_pair_in_reset_has_no_executor_and_grants_nothing(two):
    client, server = two()
    put(client, b"x" * 8)
    server.qp.modify({"qp_state": 0})
    assert queue_pair_of(server).executor is None
    path = queue_pair_of(client).executor.path
    assert path.enter()
    assert path.queue_pair(server.qp.number, client.qp.number) == 0
    path.leave()


def test_a_window_is_reached_by_packets(two):
    client, server = two()
    assert server.driver.alloc_mw(server.pd, 1)[1] != server.key.rkey
    number, key = server.driver.alloc_mw(server.pd, 1)
    post(client, RemoteOperation.WRITE, server, 8, rkey=key)
    assert take(client.cq, 1)[0].status == ACCESS_ERROR
    assert packets_of(client)
    server.driver.dealloc_mw(number)


@pytest.mark.parametrize(("left", "right"), [("1", "0"), ("0", "1"), ("0", "0")])
def test_both_ends_must_allow_it(loopback_address, left, right):
    allowed = {"left": left, "right": right}
    devices.add(",".join(f"{n}=udp:{loopback_address()}?same_host={v}" for n, v in allowed.items()))
    drivers = [registry.open_device(name) for name in allowed]
    ends = [make_end(driver, "arena") for driver in drivers]
    runtime_pair.join(*ends)
    put(ends[0], b"x" * 8)
    for here, there in (ends, ends[::-1]):
        post(here, RemoteOperation.WRITE, there, 8)
        assert take(here.cq, 1)[0].status == 0
        assert packets_of(here)
        assert not has_path(here)
    for driver in drivers:
        driver.close()
    for name in allowed:
        devices.remove(name)


@pytest.mark.parametrize("reason", ["processor", "atomics", "name"])
def test_where_it_cannot_be_the_device_says_so_and_uses_packets(
    loopback_address, monkeypatch, caplog, reason
):
    address = loopback_address()
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if reason == "processor":
        monkeypatch.setattr(same_host_limits, "PROCESSOR", "aarch64")
    elif reason == "atomics":
        monkeypatch.setattr(primitives, "ATOMIC_BETWEEN_PROCESSES", False)
    else:
        taken.bind(same_host_address.socket_name(bytes(10) + b"\xff\xff" + socket.inet_aton(address)))
    devices.add(f"left=udp:{address}?same_host=1")
    driver = registry.open_device("left")
    assert devices.find("left").engine.same_host is None
    assert "left uses packets on this host too" in caplog.text
    driver.close()
    devices.remove("left")
    taken.close()


@pytest.mark.parametrize("variable", ["SOFTHCA_CAPTURE", "SOFTHCA_FAULTS"])
def test_who_wants_to_see_packets_has_them(loopback_address, monkeypatch, tmp_path, variable):
    values = {"SOFTHCA_CAPTURE": str(tmp_path), "SOFTHCA_FAULTS": "loss=0.1,seed=1"}
    monkeypatch.setenv(variable, values[variable])
    devices.add(f"left=udp:{loopback_address()}?same_host=1")
    driver = registry.open_device("left")
    assert devices.find("left").engine.same_host is None
    driver.close()
    devices.remove("left")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is made by setuid")
def test_another_user_is_refused(loopback_address):
    devices.add(f"left=udp:{loopback_address()}?same_host=1")
    driver = registry.open_device("left")
    shared = devices.find("left").engine.same_host
    name = same_host_address.socket_name(shared.ports[1].first.gid)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller.settimeout(BOUND_S)
        try:
            caller.connect(name)
            caller.send(b'{"connect": 3, "gid": "00000000000000000000ffff7f090909"}')
            refused = caller.recv(64) == b""
        except (BrokenPipeError, ConnectionError):
            refused = True
        os._exit(0 if refused else 1)
    until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT), [driver])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not shared.sharing.directory.readers
    driver.close()
    devices.remove("left")


@pytest.fixture
def apart(loopback_address):
    """A connected end here, and one in a process of its own, that have met."""
    devices.add(f"left=udp:{loopback_address()}?same_host=1")
    driver = registry.open_device("left")
    programs = []

    def start(kind, met=has_path, here="arena"):
        program = Program("same_host_program.py", f"target=udp:{loopback_address()}?same_host=1", kind)
        programs.append(program)
        target = program.hear()
        end = make_end(driver, here)
        mtu = driver.query_port(1)["active_mtu"]
        program.say(gid=driver.query_gid(1, 0).hex(), qpn=end.qp.number, mtu=mtu, address=end.address,
                    rkey=end.key.rkey)
        connect(end.qp, Path(bytes.fromhex(target["gid"]), mtu=mtu), target["qpn"], 1, 1,
                runtime_pair.REMOTE_EVERYTHING, Reliability(timeout=8, retry_cnt=2))
        assert program.hear() == {"ready": True}
        until(lambda: met(end), [driver])
        return program, end, Target(end, target)

    yield start
    for program in programs:
        program.end()
    driver.close()
    devices.remove("left")


class Target:
    """Where the other process's memory is, as `post` wants it."""

    def __init__(self, end, words):
        self.address = words["address"]
        self.key = end.key._replace(rkey=words["rkey"])


def ask(program, **order):
    program.say(**order)
    return program.hear()


@pytest.mark.parametrize("kind", ["arena", "own"])
def test_two_processes_reach_each_other_s_memory(apart, kind):
    program, end, target = apart(kind)
    length = 256 * 1024
    data = random.Random(1).randbytes(length)
    put(end, data)
    post(end, RemoteOperation.WRITE, target, length, offset=4096)
    assert take(end.cq, 1)[0].status == 0
    assert ask(program, do="read", offset=4096, length=length)["bytes"] == data.hex()
    put(end, bytes(length))
    post(end, RemoteOperation.READ, target, length, offset=4096)
    assert take(end.cq, 1)[0].status == 0
    assert got(end, length) == data
    assert packets_of(end) == 0
    assert queue_pair_of(end).executor.operations == 2


def test_both_directions_of_two_processes_have_their_paths(apart):
    program, _, _ = apart("arena")
    assert ask(program, do="poll", rounds=20_000) == {}
    assert ask(program, do="write") == {"status": 0}
    assert ask(program, do="operations") == {"operations": 1}


@pytest.mark.parametrize("kind", ["arena", "own"])
@pytest.mark.parametrize("order", [{"do": "deregister"}, {"do": "modify", "state": ERR}])
def test_when_a_withdrawal_returns_nothing_changes_any_more(apart, kind, order):
    """This process writes as fast as it can while the other withdraws, and reads what stands there then."""
    program, end, target = apart(kind)
    stop = threading.Event()
    statuses = []

    def write():
        number = 0
        while not statuses or statuses[-1] == 0:
            number += 1
            put(end, number.to_bytes(8, "little") * 512)
            post(end, RemoteOperation.WRITE, target, 4096)
            statuses.append(take(end.cq, 1)[0].status)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: len(statuses) > 50 or stop.is_set(), [])
    then = ask(program, **order, length=4096)["bytes"]
    writer.join(BOUND_S)
    assert stop.is_set()
    assert statuses[-1] in (ACCESS_ERROR, RETRY_EXCEEDED)
    assert ask(program, do="read", offset=0, length=4096)["bytes"] == then


def stopped(program):
    """Wait until a program has stopped itself."""
    until(lambda: os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), [])


def test_one_that_dies_while_a_child_holds_its_sockets_is_noticed(apart):
    program, end, target = apart("arena")
    child = ask(program, do="fork")["child"]
    try:
        post(end, RemoteOperation.WRITE, target, 8)
        assert take(end.cq, 1)[0].status == 0
        program.kill()
        until(lambda: not has_path(end), [end.driver])
        post(end, RemoteOperation.WRITE, target, 8, wr_id=1)
        assert take(end.cq, 1)[0].status == RETRY_EXCEEDED
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("here", ["arena", "own"])
@pytest.mark.parametrize("what", ["region", "queue pair", "data access"])
def test_one_that_is_stopped_as_it_writes_holds_nobody_up_and_changes_nothing(apart, here, what):
    """The other process stops itself between the claim and the copy."""
    program, end, _ = apart("arena", here=here)
    put(end, b"here" * 2048)
    program.say(do="hold", bytes=(b"late" * 2048).hex())
    stopped(program)
    withdraw = {
        "region": lambda: end.driver.dereg_mr(end.key.handle),
        "queue pair": lambda: end.qp.modify({"qp_state": ERR}),
        "data access": lambda: end.driver.set_data_access(False),
    }[what]
    withdrawer = threading.Thread(target=withdraw, daemon=True)
    withdrawer.start()
    withdrawer.join(BOUND_S)
    ended = not withdrawer.is_alive()
    put(end, b"mine" * 1024)
    os.kill(program.pid, signal.SIGCONT)
    assert program.hear() == {"kept": False, "moved": 8192 if here == "arena" else 0}
    assert ended
    assert got(end, 8192) == b"mine" * 1024 + b"here" * 1024
    end.driver.set_data_access(True)
    shared = devices.find("left").engine.same_host
    until(lambda: not shared.sharing.directory.holds, [end.driver])


def test_who_dies_is_noticed(apart):
    program, end, target = apart("arena")
    post(end, RemoteOperation.WRITE, target, 8)
    assert take(end.cq, 1)[0].status == 0
    program.kill()
    until(lambda: not has_path(end), [end.driver])
    post(end, RemoteOperation.WRITE, target, 8, wr_id=1)
    post(end, RemoteOperation.READ, target, 8, wr_id=2)
    assert [done.status for done in take(end.cq, 2)] == [RETRY_EXCEEDED, FLUSHED]
    assert not devices.find("left").engine.same_host.ports[1].first._outbound


def test_who_died_inside_does_not_keep_a_withdrawal_waiting(apart):
    program, end, _ = apart("arena")
    shared = devices.find("left").engine.same_host
    until(lambda: shared.sharing.directory.readers, [end.driver])
    (reader,) = shared.sharing.directory.readers
    with devices.find("left").engine.loop.lock:
        primitives.store64(reader.address, primitives.load64(reader.address) | 1)  # as it stands inside
        program.kill()
        shared.sharing.directory.quiesce()
    end.driver.dereg_mr(end.key.handle)
