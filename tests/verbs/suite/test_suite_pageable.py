"""Pageable memory for programs, on real devices: registration, swap, faults, moves, and several processes."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from traffic import pattern, poll, settle, wait_until

from machine_speed import limit_s
from softhca.testing.verbs import ALL_ACCESS, VerbsEnd, attributes_of, connect, make_end
from softhca.verbs import enums as e
from softhca.verbs.device import translate_event_type
from softhca.verbs.extensions import SOFTHCA_EVENT_PAGE_FAULT
from softhca.verbs.mr import MR
from softhca.verbs.pageable import PageableMemory, PageableMR, set_data_access
from softhca.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError

PAGE = 4096
LENGTH = 8 * PAGE
PROGRAM = Path(__file__).parent.parent / "pageable_program.py"
ON_DEMAND = e.IBV_ACCESS_ON_DEMAND


@contextlib.contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(PyverbsRDMAError) as caught:
        yield
    assert caught.value.error_code == code


class Shared:
    """Client and server connected; the server's device has registered pageable memory of this process."""

    def __init__(self, pair, rights: int = ALL_ACCESS, **more: object) -> None:
        self.client, self.server = make_end(pair.client, size=1 << 17), make_end(pair.server)
        connect(self.client, self.server)
        self.client.mr.write(pattern(LENGTH), LENGTH)
        self.memory = PageableMemory(LENGTH, rights, **more)
        self.mr = PageableMR(self.server.pd, self.memory, ALL_ACCESS)

    def post(self, length: int = LENGTH, opcode: int = e.IBV_WR_RDMA_WRITE, offset: int = 0) -> None:
        self.client.send(opcode, length, offset, to=(self.mr.rkey, self.mr.buf))

    def status(self) -> int:
        return poll(self.client.send_cq, 1, self.client, self.server)[0].status

    def waits(self) -> bool:
        """Whether nothing completes although everything else that was sent has been dealt with."""
        return settle(self.client.send_cq, self.client, self.server) == []


@pytest.fixture
def shared(verbs_pair) -> Iterator[Shared]:
    made = Shared(verbs_pair)
    yield made
    made.memory.close()


def test_a_region_of_pageable_memory_is_written_and_read_by_peers(shared) -> None:
    shared.post()
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.mr.read(LENGTH, 0) == pattern(LENGTH)
    shared.mr.write("twenty thousand", 15, 20_000)
    shared.post(30_000, e.IBV_WR_RDMA_READ, LENGTH)
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.client.mr.read(15, LENGTH + 20_000) == b"twenty thousand"
    assert shared.mr.length == LENGTH
    assert shared.memory.owned
    assert "PageableMR" in str(shared.mr)


def test_writes_wait_for_memory_that_is_swapped_out_and_its_memory_is_given_back(shared) -> None:
    shared.post()
    assert shared.status() == e.IBV_WC_SUCCESS
    resident = shared.memory.resident_bytes
    shared.memory.swap_out()
    assert shared.memory.quiesced
    assert shared.memory.resident_bytes <= resident - LENGTH
    assert shared.memory.swapped_bytes == LENGTH
    with refused(errno.EBUSY):
        shared.mr.read(1, 0)
    with refused(errno.EBUSY):
        shared.memory.swap_out()
    with refused(errno.EBUSY):
        shared.memory.resume()
    shared.client.mr.write(pattern(LENGTH)[::-1], LENGTH)
    shared.post()
    assert shared.waits()
    shared.memory.swap_in()
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.mr.read(LENGTH, 0) == pattern(LENGTH)[::-1]
    assert not shared.memory.quiesced
    with refused(errno.EINVAL):
        shared.memory.swap_in()


def test_quiesce_and_resume(shared) -> None:
    shared.memory.quiesce()
    for step, code in (("quiesce", errno.EBUSY), ("swap_out", errno.EBUSY), ("migrate", errno.EBUSY),
                       ("swap_in", errno.EINVAL)):
        with refused(code):
            getattr(shared.memory, step)()
    with refused(errno.EBUSY):
        shared.memory.set_rights(e.IBV_ACCESS_REMOTE_READ)
    shared.post(100)
    assert shared.waits()
    shared.memory.resume()
    assert shared.status() == e.IBV_WC_SUCCESS
    with refused(errno.EINVAL):
        shared.memory.resume()


def test_migration_under_writes_loses_nothing(shared) -> None:
    address = shared.memory.buf
    for number in range(20):
        data = bytes((number + i) & 0xFF for i in range(LENGTH))
        shared.client.mr.write(data, LENGTH)
        shared.post()
        assert shared.memory.migrate() == 8
        assert shared.status() == e.IBV_WC_SUCCESS
        assert shared.mr.read(LENGTH, 0) == data
    assert shared.memory.buf == address


def test_data_access_off_holds_ordinary_regions_too_and_nothing_else(shared) -> None:
    target = MR(shared.server.pd, LENGTH, ALL_ACCESS)
    assert set_data_access(shared.server.context, False) is True
    shared.client.send(e.IBV_WR_RDMA_WRITE, LENGTH, to=(target.rkey, target.buf))
    shared.server.context.query_port(1)
    with MR(shared.server.pd, PAGE, ALL_ACCESS):
        pass
    assert target.read(8, 0) == bytes(8)
    assert shared.client.send_cq.poll(1)[1] == []
    assert set_data_access(shared.server.context, True) is False
    assert shared.status() == e.IBV_WC_SUCCESS
    assert target.read(LENGTH, 0) == pattern(LENGTH)
    with pytest.raises(TypeError):
        set_data_access(shared.server, True)  # type: ignore[arg-type]


def test_two_devices_serve_one_memory_and_both_keep_a_change_of_rights(shared) -> None:
    before = shared.memory.resident_bytes
    second = PageableMR(shared.client.pd, shared.memory, ALL_ACCESS)
    assert shared.memory.resident_bytes == before, "the table stands once"
    shared.server.mr.write(b"from the other side", 19)
    shared.server.send(e.IBV_WR_RDMA_WRITE, 19, to=(second.rkey, second.buf + PAGE))
    assert poll(shared.server.send_cq, 1, shared.client, shared.server)[0].status == e.IBV_WC_SUCCESS
    assert shared.mr.read(19, PAGE) == b"from the other side"
    shared.memory.set_rights(e.IBV_ACCESS_REMOTE_READ)
    assert shared.memory.rights == e.IBV_ACCESS_REMOTE_READ
    shared.post(8)
    assert shared.status() == e.IBV_WC_REM_ACCESS_ERR
    first, other = make_end(shared.client.context), make_end(shared.server.context)
    connect(first, other)
    other.send(e.IBV_WR_RDMA_WRITE, 8, to=(second.rkey, second.buf))
    assert poll(other.send_cq, 1, first, other)[0].status == e.IBV_WC_REM_ACCESS_ERR


def test_pages_on_demand_come_when_a_peer_touches_them(verbs_pair) -> None:
    shared = Shared(verbs_pair, ALL_ACCESS | ON_DEMAND)
    resident = shared.memory.resident_bytes
    shared.post(PAGE)
    assert shared.status() == e.IBV_WC_SUCCESS
    assert resident + PAGE <= shared.memory.resident_bytes <= resident + 3 * PAGE
    shared.post()
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.mr.read(LENGTH, 0) == pattern(LENGTH)
    shared.memory.swap_out(PAGE, 2 * PAGE)
    assert shared.memory.swapped_bytes == 2 * PAGE
    shared.client.mr.write(bytes(LENGTH), LENGTH)
    shared.post()
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.mr.read(LENGTH, 0) == bytes(LENGTH)
    shared.memory.close()


def test_without_a_pager_pages_come_when_they_are_served(verbs_pair) -> None:
    shared = Shared(verbs_pair, ALL_ACCESS | ON_DEMAND, pager=False)
    shared.post(PAGE)
    assert shared.waits()
    wait_until(lambda: shared.memory.service() == 1, shared.client, shared.server)
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.memory.fetch() == 7
    assert shared.memory.fetch(0, PAGE) == 0
    shared.memory.close()


@pytest.mark.parametrize("iova", [0, 1 << 40])
def test_the_first_byte_has_the_address_that_is_asked_for(shared, iova: int) -> None:
    shared.mr = PageableMR(shared.server.pd, shared.memory, ALL_ACCESS, iova)
    assert shared.mr.buf == iova
    shared.post()
    assert shared.status() == e.IBV_WC_SUCCESS
    assert shared.memory.read(LENGTH, 0) == pattern(LENGTH)


def test_misuse_is_refused(shared) -> None:
    with refused(errno.EINVAL):
        PageableMemory(0)
    with refused(errno.EINVAL):
        PageableMemory(PAGE, e.IBV_ACCESS_REMOTE_WRITE)
    with refused(errno.EINVAL):
        PageableMR(shared.server.pd, shared.memory, e.IBV_ACCESS_REMOTE_ATOMIC)
    with refused(errno.EOPNOTSUPP):
        PageableMR(shared.server.pd, shared.memory, e.IBV_ACCESS_MW_BIND)
    with refused(errno.EINVAL):
        shared.memory.set_rights(ALL_ACCESS | ON_DEMAND)
    with refused(errno.EINVAL):
        shared.memory.swap_out(PAGE, PAGE)
    with refused(errno.EINVAL):
        PageableMemory.attach(0)
    for wrong in (lambda: PageableMR(shared.server.context, shared.memory, 0),
                  lambda: PageableMR(shared.server.pd, shared.mr, 0)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(PyverbsUserError):
        shared.memory.write(b"short", 6)
    with pytest.raises(PyverbsUserError):
        shared.memory.write(b"short", -1)
    with refused(errno.EINVAL):
        shared.memory.read(1, LENGTH)
    shared.post()
    assert shared.status() == e.IBV_WC_SUCCESS, "nothing has changed"


def test_registrations_end_with_their_domain_and_memory_that_ends_first_kills_their_keys(shared) -> None:
    extra = [PageableMR(shared.server.pd, shared.memory, ALL_ACCESS) for _ in range(31)]
    with refused(errno.ENOMEM):
        PageableMR(shared.server.pd, shared.memory, ALL_ACCESS)
    for each in extra:
        each.close()
    shared.memory.close()
    shared.memory.close()
    shared.post(8)
    assert shared.status() == e.IBV_WC_REM_ACCESS_ERR
    shared.mr.close()
    with pytest.raises(PyverbsUserError):
        shared.mr.rkey  # noqa: B018


def test_the_event_of_faults_has_a_name() -> None:
    assert SOFTHCA_EVENT_PAGE_FAULT not in {int(each) for each in e.ibv_event_type}
    assert translate_event_type(SOFTHCA_EVENT_PAGE_FAULT) == "SOFTHCA_EVENT_PAGE_FAULT"


def test_the_example_shows_what_it_says(loopback_address) -> None:
    example = Path(__file__).parents[3] / "examples" / "pageable_memory.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                   "SOFTHCA_DEVICES": f"shown=udp:{loopback_address()}"}
    done = subprocess.run([sys.executable, str(example)], env=environment, capture_output=True, text=True,
                          timeout=limit_s(100), check=False)
    assert done.returncode == 0, done.stderr
    for line in ("completed meanwhile: 0", "swapped in: IBV_WC_SUCCESS b'written while it was out' b'page 5'",
                 "moved pages: 64 IBV_WC_SUCCESS b'written while it moved'",
                 "of 1073741824 bytes: IBV_WC_SUCCESS b'brought when it was touched' take",
                 "after the change of rights: IBV_WC_REM_ACCESS_ERR b'page 0'"):
        assert line in done.stdout


# Several processes


class Other:
    """Another process with a device of its own, and this one's end of the connection to it."""

    def __init__(self, pair, role: str, address: str, memory: PageableMemory | None = None) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(PROGRAM.parent), *filter(None, sys.path)])
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), f"other=udp:{address}", pair.mode, role, str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": path}, pass_fds=[theirs.fileno()])
        theirs.close()
        self.control.settimeout(30)
        if memory is not None:
            socket.send_fds(self.control, [b"{}"], [memory.fd])
        else:
            _, (self.fd,), _, _ = socket.recv_fds(self.control, 64, 1)
        self.end: VerbsEnd = make_end(pair.client)
        self.there = self.ask("where")
        self.ask("join", gid=str(pair.client.query_gid(1, 0)), qpn=self.end.qp.qp_num)
        self.end.qp.to_rts(attributes_of(pair.client, self.there["gid"], self.there["qpn"], 1, 1))

    def ask(self, request: str, **fields: object) -> dict:
        self.control.send(json.dumps({"request": request, **fields}).encode())
        return json.loads(self.control.recv(65536))

    def write(self, data: bytes, offset: int = 0) -> None:
        self.end.mr.write(data, len(data))
        self.end.send(e.IBV_WR_RDMA_WRITE, len(data), to=(self.there["rkey"], offset))

    def status(self) -> int:
        return poll(self.end.send_cq, 1, self.end)[0].status

    def close(self) -> None:
        self.control.close()
        assert self.process.wait(30) == 0


def test_two_processes_serve_one_memory_with_one_table(verbs_pair, loopback_address) -> None:
    shared = Shared(verbs_pair)
    other = Other(verbs_pair, "consumer", loopback_address(), shared.memory)
    resident = shared.memory.resident_bytes
    other.write(b"by way of the other process", PAGE - 5)
    assert other.status() == e.IBV_WC_SUCCESS
    assert shared.mr.read(27, PAGE - 5) == b"by way of the other process"
    assert shared.memory.resident_bytes <= resident + 2 * PAGE
    assert other.ask("step", name="swap_out") == {"error": errno.EPERM}
    shared.memory.swap_out()
    other.write(b"afterwards", 100)
    assert other.ask("read", length=1, offset=0) == {"error": errno.EAGAIN}
    assert other.end.send_cq.poll(1)[1] == []
    shared.memory.swap_in()
    assert other.status() == e.IBV_WC_SUCCESS
    assert shared.mr.read(10, 100) == b"afterwards"
    for _ in range(5):
        other.write(b"moved", 200)
        shared.memory.migrate()
        assert other.status() == e.IBV_WC_SUCCESS
        assert bytes.fromhex(other.ask("read", length=5, offset=200)["data"]) == b"moved"
    shared.memory.set_rights(e.IBV_ACCESS_REMOTE_READ)
    other.write(b"too late", 100)
    shared.post(8)
    assert (other.status(), shared.status()) == (e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_ACCESS_ERR)
    assert shared.mr.read(10, 100) == b"afterwards"
    other.close()
    shared.memory.close()


def test_faults_of_another_process_are_served_by_the_owner_s_pager(verbs_pair, loopback_address) -> None:
    shared = Shared(verbs_pair, ALL_ACCESS | ON_DEMAND)
    other = Other(verbs_pair, "consumer", loopback_address(), shared.memory)
    other.write(b"over there", 3 * PAGE - 4)
    assert other.status() == e.IBV_WC_SUCCESS
    assert shared.memory.read(10, 3 * PAGE - 4) == b"over there"
    other.close()
    shared.memory.close()


def test_the_owner_s_death_leaves_what_is_there_and_holds_what_is_not(verbs_pair, loopback_address) -> None:
    other = Other(verbs_pair, "owner", loopback_address())
    memory = PageableMemory.attach(other.fd)
    os.close(other.fd)
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
    connect(client, server)
    region = PageableMR(server.pd, memory, ALL_ACCESS)
    assert other.ask("fetch") == {"fetched": 4}
    assert not memory.owned
    other.process.kill()
    other.process.wait()
    client.mr.write(b"on its own", 10)
    client.send(e.IBV_WR_RDMA_WRITE, 10, to=(region.rkey, region.buf + 5))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert memory.read(10, 5) == b"on its own"
    with refused(errno.EPERM):
        memory.fetch()
    other.control.close()
    memory.close()


def test_faults_without_an_owner_are_told_and_stay_held(verbs_pair, loopback_address) -> None:
    other = Other(verbs_pair, "owner", loopback_address())
    memory = PageableMemory.attach(other.fd)
    os.close(other.fd)
    other.process.kill()
    other.process.wait()
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
    connect(client, server)
    region = PageableMR(server.pd, memory, ALL_ACCESS)
    client.send(e.IBV_WR_RDMA_WRITE, 10, to=(region.rkey, region.buf))
    found = []

    def told() -> bool:
        client.context.progress()
        with contextlib.suppress(PyverbsError):
            event = server.context.get_async_event(timeout_s=0)
            event.ack()
            found.append((event.event_type, event.element))
        return bool(found)

    wait_until(told, client, server)
    assert found == [(SOFTHCA_EVENT_PAGE_FAULT, region.lkey)]
    assert settle(client.send_cq, client, server) == []
    other.control.close()
    memory.close()
