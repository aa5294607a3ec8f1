"""Regions on demand, explicit and implicit, on real devices: traffic, memory that comes and goes, advice."""

import errno
import mmap as python_mmap

import pytest
from traffic import connected, pattern, poll

from softhca.machine import primitives
from softhca.testing.verbs import ALL_ACCESS, VerbsEnd, handle_to
from softhca.verbs import enums as e
from softhca.verbs.libibverbs_enums import (
    _IBV_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
)
from softhca.verbs.libibverbs_enums import (
    _IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as PREFETCH_NO_FAULT,
)
from softhca.verbs.libibverbs_enums import (
    _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE as PREFETCH_WRITE,
)
from softhca.verbs.libibverbs_enums import (
    _IBV_ADVISE_MR_FLAG_FLUSH as FLUSH,
)
from softhca.verbs.mem_alloc import madvise
from softhca.verbs.mr import MR, MREx
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.wr import SGE, RecvWR, SendWR

ON_DEMAND = e.IBV_ACCESS_ON_DEMAND
ALL = ALL_ACCESS | ON_DEMAND
PAGE = 4096
LENGTH = 8 * PAGE


def refused(call, code: int) -> None:
    with pytest.raises(PyverbsRDMAError) as caught:
        call()
    assert caught.value.error_code == code


class Ground:
    """Memory of the program that can be taken away: its addresses stay reserved, so that nobody else's
    mapping comes to stand there."""

    def __init__(self) -> None:
        self.map = python_mmap.mmap(-1, LENGTH, python_mmap.MAP_PRIVATE | python_mmap.MAP_ANONYMOUS)
        self.address = primitives.address_of(self.map)

    def remove(self, page: int = 0, count: int = LENGTH // PAGE) -> None:
        assert primitives.hide_pages(self.address + page * PAGE, count * PAGE) == 0


@pytest.fixture
def ground() -> Ground:
    return Ground()


@pytest.fixture(params=["explicit", "implicit"])
def far(request, verbs_pair, ground) -> tuple[VerbsEnd, VerbsEnd, MR]:
    """A client, and a server with a region over ``ground``."""
    client, server = connected(verbs_pair, size=2 * LENGTH)
    if request.param == "explicit":
        region = MR(server.pd, LENGTH, ALL, address=ground.address)
    else:
        region = MR(server.pd, 10, ALL, implicit=True)
    client.mr.write(pattern(LENGTH), LENGTH)
    return client, server, region


def status(client: VerbsEnd, server: VerbsEnd) -> int:
    return poll(client.send_cq, 1, client, server)[0].status


def test_capabilities_are_those_of_the_services(verbs_pair) -> None:
    caps = verbs_pair.client.query_device_ex().odp_caps
    assert caps.general_caps == e.IBV_ODP_SUPPORT | e.IBV_ODP_SUPPORT_IMPLICIT
    messages = e.IBV_ODP_SUPPORT_SEND | e.IBV_ODP_SUPPORT_RECV | e.IBV_ODP_SUPPORT_SRQ_RECV
    rdma = e.IBV_ODP_SUPPORT_WRITE | e.IBV_ODP_SUPPORT_READ | e.IBV_ODP_SUPPORT_ATOMIC
    assert caps.rc_odp_caps & (messages | rdma) == messages | rdma
    assert caps.uc_odp_caps == messages | e.IBV_ODP_SUPPORT_WRITE
    assert caps.ud_odp_caps == messages
    assert caps.xrc_odp_caps & ~rdma == e.IBV_ODP_SUPPORT_SEND | e.IBV_ODP_SUPPORT_SRQ_RECV


def test_memory_that_nobody_has_touched_is_written_read_and_counted_in(far, ground) -> None:
    client, server, region = far
    client.send(e.IBV_WR_RDMA_WRITE, LENGTH, to=(region.rkey, ground.address))
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert ground.map[:LENGTH] == pattern(LENGTH)
    ground.map[100:106] = b"looked"
    client.send(e.IBV_WR_RDMA_READ, LENGTH, LENGTH, to=(region.rkey, ground.address))
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert client.mr.read(6, LENGTH + 100) == b"looked"
    ground.map[64:72] = (40).to_bytes(8, "little")
    client.send(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, to=(region.rkey, ground.address + 64), operands=(2, 0))
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert (client.mr.read(8, 0), ground.map[64]) == ((40).to_bytes(8, "little"), 42)


def test_it_sends_and_receives(far, ground) -> None:
    client, server, region = far
    server.qp.post_recv(RecvWR(1, 1, [SGE(ground.address + 5, LENGTH - 5, region.lkey)]))
    client.send(length=1000)
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert poll(server.recv_cq, 1, client, server)[0].byte_len == 1000
    assert ground.map[5:1005] == pattern(1000)
    client.receive(LENGTH)
    server.qp.post_send(SendWR(2, sg=[SGE(ground.address + 5, 1000, region.lkey)], num_sge=1))
    assert poll(server.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert poll(client.recv_cq, 1, client, server)[0].byte_len == 1000


@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD])
def test_what_a_peer_does_to_memory_that_is_gone_fails(far, ground, opcode: int) -> None:
    client, server, region = far
    ground.remove(2, 1)
    length = 8 if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD else LENGTH
    client.send(opcode, length, LENGTH, to=(region.rkey, ground.address + (2 * PAGE if length == 8 else 0)))
    assert status(client, server) == e.IBV_WC_REM_ACCESS_ERR


def test_own_requests_from_memory_that_is_gone_end_with_a_protection_error(far, ground) -> None:
    client, server, region = far
    ground.remove(1, 1)
    client.receive(LENGTH)
    server.qp.post_send(SendWR(2, sg=[SGE(ground.address, 2 * PAGE, region.lkey)], num_sge=1))
    assert poll(server.send_cq, 1, client, server)[0].status == e.IBV_WC_LOC_PROT_ERR


def test_a_receive_into_memory_that_is_gone_ends_with_a_protection_error(far, ground) -> None:
    client, server, region = far
    ground.remove()
    server.qp.post_recv(RecvWR(1, 1, [SGE(ground.address, PAGE, region.lkey)]))
    client.send(length=100)
    assert status(client, server) == e.IBV_WC_REM_OP_ERR
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_LOC_PROT_ERR


def test_discarded_memory_is_zeros_and_written_again(far, ground) -> None:
    client, server, region = far
    ground.map[:4] = b"data"
    madvise(ground.address, LENGTH)
    client.send(e.IBV_WR_RDMA_READ, 4, LENGTH, to=(region.rkey, ground.address))
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert client.mr.read(4, LENGTH) == bytes(4)
    client.send(e.IBV_WR_RDMA_WRITE, LENGTH, to=(region.rkey, ground.address))
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert ground.map[:LENGTH] == pattern(LENGTH)


@pytest.mark.parametrize("kind", [e.IBV_QPT_UC, e.IBV_QPT_UD])
def test_unreliable_services_use_it_too(verbs_pair, ground, kind: int) -> None:
    client, server = connected(verbs_pair, kind)
    source = MR(client.pd, LENGTH, ALL, address=ground.address)
    ground.map[:12] = b"on demand ud"
    server.receive(100)
    request = SendWR(3, sg=[SGE(ground.address, 12, source.lkey)], num_sge=1)
    if kind == e.IBV_QPT_UD:
        handle = handle_to(client, server)
        request.set_wr_ud(handle, server.qp.qp_num, 0x11111111)
    client.qp.post_send(request)
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(12, 40 if kind == e.IBV_QPT_UD else 0) == b"on demand ud"
    ground.remove()
    client.qp.post_send(request)
    assert status(client, server) == e.IBV_WC_LOC_PROT_ERR


def test_the_programs_own_look_at_it_is_refused_and_does_not_end_the_program(verbs_pair, ground) -> None:
    region = MR(PD(verbs_pair.client), LENGTH, ALL, address=ground.address)
    region.write("text", 4, PAGE)
    assert (region.read(4, PAGE), ground.map[PAGE : PAGE + 4]) == (b"text", b"text")
    ground.remove()
    refused(lambda: region.read(4, PAGE), errno.EFAULT)
    refused(lambda: region.write("text", 4, PAGE), errno.EFAULT)


def test_regions_of_the_devices_memory_and_of_buffers_are_on_demand_too(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    buffer = bytearray(100)
    for region, place in (
        (MR(server.pd, 100, ALL | e.IBV_ACCESS_HUGETLB), None),
        (MREx(server.pd, 100, ALL), None),
        (MR(server.pd, access=ALL, buffer=buffer), primitives.address_of(buffer)),
    ):
        client.mr.write(b"whoever", 7)
        client.send(e.IBV_WR_RDMA_WRITE, 7, to=(region.rkey, place or region.buf))
        assert status(client, server) == e.IBV_WC_SUCCESS
        assert region.read(7, 0) == b"whoever"
    assert buffer[:7] == b"whoever"


def test_an_implicit_region_says_what_it_is(verbs_pair) -> None:
    domain = PD(verbs_pair.client)
    region = MR(domain, 10, ALL, implicit=True)
    assert region.length == (1 << 64) - 1
    region.write("0123456789", 10)
    assert region.read(10, 0) == b"0123456789"
    refused(lambda: MR(domain, 10, ALL_ACCESS, implicit=True), errno.EINVAL)


def test_it_moves_to_another_place_and_stays_on_demand(verbs_pair, ground) -> None:
    client, server = connected(verbs_pair)
    region = MR(server.pd, PAGE, ALL, address=ground.address)
    former = region.rkey
    region.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=ground.address + PAGE, length=PAGE)
    assert region.rkey != former
    client.mr.write(b"moved", 5)
    client.send(e.IBV_WR_RDMA_WRITE, 5, to=(region.rkey, ground.address + PAGE))
    assert status(client, server) == e.IBV_WC_SUCCESS
    assert ground.map[PAGE : PAGE + 5] == b"moved"
    region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=ON_DEMAND | e.IBV_ACCESS_REMOTE_READ)
    refused(lambda: region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=ALL_ACCESS), errno.EOPNOTSUPP)
    pinned = MR(server.pd, PAGE, ALL_ACCESS, address=ground.address)
    refused(lambda: pinned.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=ALL), errno.EOPNOTSUPP)
    both = e.IBV_REREG_MR_CHANGE_ACCESS | e.IBV_REREG_MR_CHANGE_TRANSLATION
    refused(lambda: pinned.rereg(both, addr=ground.address, length=8, access=ALL), errno.EOPNOTSUPP)
    client.send(e.IBV_WR_RDMA_WRITE, 5, to=(region.rkey, ground.address + PAGE))
    assert status(client, server) == e.IBV_WC_REM_ACCESS_ERR


def resident(address: int) -> bool:
    """Whether the page of an address is in memory, as the system tells (``/proc/self/pagemap``)."""
    with open("/proc/self/pagemap", "rb") as table:
        table.seek(address // PAGE * 8)
        return bool(int.from_bytes(table.read(8), "little") >> 63)


def test_advice_brings_pages(verbs_pair, ground) -> None:
    if primitives.populate_pages(0, 0, True):
        pytest.skip("this kernel has no MADV_POPULATE_WRITE (Linux 5.14)")
    domain = PD(verbs_pair.client)
    explicit = MR(domain, LENGTH, ALL, address=ground.address, iova=0x5000)
    implicit = MR(domain, 10, ALL, implicit=True)
    domain.advise_mr(PREFETCH_NO_FAULT, FLUSH, [SGE(0x5000, LENGTH, explicit.lkey)])
    assert not resident(ground.address)
    domain.advise_mr(PREFETCH_WRITE, FLUSH, [SGE(0x5000, 1, explicit.lkey)], 1)
    assert resident(ground.address)
    assert not resident(ground.address + PAGE)
    domain.advise_mr(PREFETCH, 0, [SGE(ground.address + 2 * PAGE, PAGE, implicit.lkey)])
    assert resident(ground.address + 2 * PAGE)


def test_advice_that_cannot_be_followed_is_refused(verbs_pair, ground) -> None:
    domain, other = PD(verbs_pair.client), PD(verbs_pair.client)
    region = MR(domain, LENGTH, ALL, address=ground.address)
    constant = MR(domain, LENGTH, ON_DEMAND, address=ground.address)
    pinned = MR(domain, LENGTH, ALL_ACCESS)
    whole = [SGE(ground.address, LENGTH, region.lkey)]
    refused(lambda: domain.advise_mr(3, FLUSH, whole), errno.EOPNOTSUPP)
    refused(lambda: domain.advise_mr(PREFETCH, 2, whole), errno.EINVAL)
    refused(lambda: domain.advise_mr(PREFETCH, FLUSH, []), errno.EINVAL)
    refused(lambda: domain.advise_mr(PREFETCH, FLUSH, whole, 0), errno.EINVAL)
    refused(lambda: domain.advise_mr(PREFETCH, 0, [SGE(pinned.buf, 8, pinned.lkey)]), errno.EINVAL)
    refused(lambda: other.advise_mr(PREFETCH, 0, whole), errno.EFAULT)
    for wrong in (
        SGE(ground.address, LENGTH + 1, region.lkey),
        SGE(ground.address - 1, 8, region.lkey),
        SGE(ground.address, 8, region.lkey + 1),
    ):
        refused(lambda sge=wrong: domain.advise_mr(PREFETCH_NO_FAULT, 0, [sge]), errno.EFAULT)
    refused(
        lambda: domain.advise_mr(PREFETCH_WRITE, 0, [SGE(ground.address, 8, constant.lkey)]), errno.EFAULT
    )
    with pytest.raises(IndexError):
        domain.advise_mr(PREFETCH, 0, whole, 2)
    ground.remove(0, 1)
    domain.advise_mr(PREFETCH, 0, whole)
    if primitives.populate_pages(0, 0, True) == 0:
        refused(lambda: domain.advise_mr(PREFETCH, FLUSH, whole), errno.EFAULT)
    region.close()
    refused(lambda: domain.advise_mr(PREFETCH, 0, whole), errno.EFAULT)
