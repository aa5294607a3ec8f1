"""Protection domains and regions that one process makes and another one imports, by the descriptor alone."""

import contextlib
import errno
import os
import sys
from types import SimpleNamespace

import pytest
from runtime_programs import Program

from softhca.driver import command_descriptors
from softhca.runtime import devices
from softhca.testing.verbs import ALL_ACCESS
from softhca.verbs import enums as e
from softhca.verbs.addr import AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import DM, AllocDmAttr, Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR


class Importer(Program):
    """A process that was given the descriptor and the numbers, and nothing else."""

    def __init__(self, descriptor, *handles):
        super().__init__("importing_program.py", *map(str, (descriptor, *handles)), pass_fds=(descriptor,))
        self.begun = self.hear()

    def ask(self, call, *words):
        self.say(call=call, words=words)
        return self.hear()


@pytest.fixture(params=["embedded", "process"])
def exporter(request, loopback_address):
    """A process's own device, domain, region and queue pair."""
    name = f"exp{os.getpid() % 1000}"
    devices.add(f"{name}=udp:{loopback_address()}", request.param)
    context = Context(name)
    pd = PD(context)
    mr = MR(pd, 4096, ALL_ACCESS | e.IBV_ACCESS_MW_BIND)
    cq = CQ(context, 16)
    cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
    qp = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
    yield SimpleNamespace(name=name, context=context, pd=pd, mr=mr, cq=cq, qp=qp)
    context.close()
    devices.remove(name)


@pytest.fixture
def importer(exporter):
    """A process that has imported them."""
    with started(exporter) as program:
        assert "qp" in program.begun, program.begun
        yield program


@contextlib.contextmanager
def started(exporter, pd=None, mr=None):
    descriptor = os.dup(exporter.context.cmd_fd)
    program = Importer(descriptor, pd or exporter.pd.handle, mr or exporter.mr.handle)
    os.close(descriptor)
    try:
        yield program
    finally:
        program.kill()
        program.child.stdin.close()
        program.child.stdout.close()


def connect(exporter, peer):
    attr = QPAttr(port_num=1)
    attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = ALL_ACCESS, peer, 3
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    route = GlobalRoute(dgid=exporter.context.query_gid(1, 0), sgid_index=0)
    attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=route)
    exporter.qp.to_rts(attr)


def counts(exporter):
    return {kind: count for kind, count in devices.find(exporter.name).resources().items() if count}


def write(exporter, rkey, address):
    """A write by the exporter's queue pair; the status of its completion."""
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(exporter.mr.buf, 8, exporter.mr.lkey)])
    wr.set_wr_rdma(rkey, address)
    exporter.qp.post_send(wr)
    while not (found := exporter.cq.poll(1))[0]:
        pass
    return found[1][0].status


def test_another_process_sends_out_of_an_imported_region(exporter, importer):
    mr = exporter.mr
    assert importer.ask("keys") == [mr.lkey, mr.rkey, 4096, 0]
    mr.write(b"by another process", 18)
    connect(exporter, importer.begun["qp"])
    assert importer.ask("connect", exporter.qp.qp_num) == importer.begun["qp"]
    assert importer.ask("write", mr.buf, mr.rkey, mr.buf + 2048, 18) == e.IBV_WC_SUCCESS
    assert mr.read(18, 2048) == b"by another process"
    assert importer.ask("free_pd") == errno.EINVAL  # it is not the importer's to free


def test_numbers_that_are_not_the_exporters_are_refused(exporter, importer):
    with (
        PD(exporter.context) as other,
        MR(other, 64, ALL_ACCESS) as elsewhere,
        DM(exporter.context, AllocDmAttr(length=64)) as dm,
        Context(exporter.name) as unshown,
        PD(unshown) as unseen,
        DM(unshown, AllocDmAttr(length=64)) as hidden,
    ):
        refusals = [
            importer.ask("refused", *words)
            for words in (("pd", 4711), ("pd", 0), ("pd", unseen.handle), ("pd", exporter.pd.handle),
                          ("mr", 4711), ("mr", 0), ("mr", elsewhere.handle), ("dm", 4711), ("dm", 0),
                          ("dm", hidden.handle), ("dm", dm.handle))
        ]  # fmt: skip
    assert refusals == [errno.ENOENT] * 3 + [errno.EALREADY] + [errno.ENOENT] * 6 + [0]


def request(exporter, wr):
    """The status of its completion."""
    exporter.qp.post_send(wr)
    while not (found := exporter.cq.poll(1))[0]:
        pass
    return found[1][0].status


def test_device_memory_is_the_same_in_both_processes(exporter, importer):
    dm = DM(exporter.context, AllocDmAttr(length=5000))
    dm.copy_to_dm(4096, b"from its maker..", 16)
    assert importer.ask("import_dm", dm.handle) == 5000
    assert bytes.fromhex(importer.ask("read_dm", 4096, 16)) == b"from its maker.."
    assert importer.ask("write_dm", 8, b"from the other..".hex()) == 16
    assert dm.copy_from_dm(8, 16) == b"from the other.."
    connect(exporter, importer.begun["qp"])
    importer.ask("connect", exporter.qp.qp_num)
    rkey = importer.ask("register_dm", 4, 4996)
    local = SGE(exporter.mr.buf, 16, exporter.mr.lkey)
    exporter.mr.write(b"by RDMA, both ok", 16)
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[local])
    wr.set_wr_rdma(rkey, 4092)  # requests name the region's bytes from 0 on; it begins at 4
    assert request(exporter, wr) == e.IBV_WC_SUCCESS
    assert dm.copy_from_dm(4096, 16) == b"by RDMA, both ok"
    wr = SendWR(opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[local])
    wr.set_wr_rdma(rkey, 4)
    assert request(exporter, wr) == e.IBV_WC_SUCCESS
    assert exporter.mr.read(16, 0) == b"from the other.."
    number = bytes(range(8))
    dm.copy_to_dm(16, number, 8)
    wr = SendWR(
        opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[SGE(exporter.mr.buf, 8, exporter.mr.lkey)]
    )
    wr.set_wr_atomic(rkey, 16 - 4, 1)
    status = request(exporter, wr)
    assert status == e.IBV_WC_REM_INV_REQ_ERR  # not at a multiple of eight of the region's addresses
    assert importer.ask("end_dm") is True
    assert dm.copy_from_dm(8, 8) == b"from the"
    dm.close()


def test_atomics_of_another_process_change_device_memory(exporter, importer):
    with DM(exporter.context, AllocDmAttr(length=64)) as dm:
        importer.ask("import_dm", dm.handle)
        rkey = importer.ask("register_dm", 0, 64)
        connect(exporter, importer.begun["qp"])
        importer.ask("connect", exporter.qp.qp_num)
        local = [SGE(exporter.mr.buf, 8, exporter.mr.lkey)]
        for before, opcode, operands in (
            (0, e.IBV_WR_ATOMIC_FETCH_AND_ADD, (7,)), (7, e.IBV_WR_ATOMIC_CMP_AND_SWP, (7, 9)),
            (9, e.IBV_WR_ATOMIC_CMP_AND_SWP, (7, 1)),
        ):  # fmt: skip
            wr = SendWR(opcode=opcode, num_sge=1, sg=local)
            wr.set_wr_atomic(rkey, 8, *operands)
            assert request(exporter, wr) == e.IBV_WC_SUCCESS
            assert int.from_bytes(exporter.mr.read(8, 0), sys.byteorder) == before
        assert int.from_bytes(dm.copy_from_dm(8, 8), sys.byteorder) == 9
        assert int.from_bytes(bytes.fromhex(importer.ask("read_dm", 8, 8)), sys.byteorder) == 9


def test_imported_device_memory_stays_when_its_maker_closes_it(exporter, importer):
    dm = DM(exporter.context, AllocDmAttr(length=64))
    importer.ask("import_dm", dm.handle)
    rkey, handle = importer.ask("register_dm", 0, 64), dm.handle
    connect(exporter, importer.begun["qp"])
    importer.ask("connect", exporter.qp.qp_num)
    dm.close()
    assert counts(exporter).get("DM", 0) == 0
    assert importer.ask("refused", "dm", handle) == errno.ENOENT
    with DM(exporter.context, AllocDmAttr(length=64)) as other:  # has pages of its own
        assert importer.ask("write_dm", 0, bytes(range(64)).hex()) == 64
        assert other.copy_from_dm(0, 64) == bytes(64)
        assert write(exporter, rkey, 0) == e.IBV_WC_SUCCESS
        assert importer.ask("read_dm", 0, 16) == (bytes(8) + bytes(range(8, 16))).hex()
        assert other.copy_from_dm(0, 64) == bytes(64)
    assert importer.ask("end_dm") is True


def test_a_region_is_imported_by_the_same_number_after_its_key_has_changed(exporter):
    mr, handle = exporter.mr, exporter.mr.handle
    again = MR(exporter.pd, 8192, ALL_ACCESS)
    mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=again.buf, length=8192)
    assert mr.handle == handle != mr.lkey
    with started(exporter, mr=handle) as program:
        assert program.ask("keys")[:3] == [mr.lkey, mr.rkey, 8192]


def test_a_region_of_the_importer_in_the_domain_is_the_domains(exporter, importer):
    connect(exporter, importer.begun["qp"])
    importer.ask("connect", exporter.qp.qp_num)
    rkey, address = importer.ask("register")
    assert write(exporter, rkey, address) == e.IBV_WC_SUCCESS


def test_a_domain_is_busy_as_long_as_another_process_has_something_in_it(exporter, importer):
    exporter.qp.close()
    exporter.mr.close()
    with pytest.raises(PyverbsRDMAError) as caught:
        exporter.pd.close()
    assert caught.value.error_code == errno.EBUSY
    assert importer.ask("close") is True
    exporter.pd.close()
    assert counts(exporter).get("PD", 0) == 0


def test_a_domain_lives_on_for_those_who_are_in_it_when_its_owner_has_gone(exporter, importer):
    other = Context(exporter.name)
    connect(exporter, importer.begun["qp"])
    importer.ask("connect", exporter.qp.qp_num)
    mr, buf = exporter.mr, exporter.mr.buf
    assert importer.ask("bind", buf, 64) == e.IBV_WC_SUCCESS
    key = mr.rkey
    with pytest.raises(PyverbsRDMAError) as caught:
        exporter.context.close()
    assert caught.value.error_code == errno.EBUSY
    exporter.context.driver.close()  # as when its process ends: the region goes, with a window bound to it
    assert {kind: counts(exporter).get(kind, 0) for kind in ("PD", "MR", "QP", "MW")} == {
        "PD": 1, "MR": 0, "QP": 1, "MW": 1,
    }  # fmt: skip
    assert importer.ask("write", buf, key, buf, 8) == e.IBV_WC_LOC_PROT_ERR
    assert importer.ask("register")
    assert importer.ask("close") is True
    left = counts(exporter)
    assert not {kind: left[kind] for kind in ("PD", "MR", "QP", "MW") if kind in left}
    other.close()


def test_an_importer_that_dies_leaves_nothing(exporter, importer):
    importer.ask("register")
    importer.kill()
    exporter.qp.close()
    exporter.mr.close()
    while counts(exporter).get("QP"):
        exporter.context.progress()
    exporter.pd.close()
    assert "PD" not in counts(exporter)


def test_an_import_of_what_its_owner_has_freed_ends_quietly(exporter):
    with PD(exporter.context) as pd, MR(pd, 64, ALL_ACCESS) as mr:
        descriptor = os.dup(exporter.context.cmd_fd)
        with started(exporter, pd.handle, mr.handle) as program:
            assert program.ask("forget") is True
        os.close(descriptor)


def test_a_descriptor_that_another_device_has_made_up_is_no_proof(exporter):
    """It says where the adapter is met, and is not the one that was exported."""
    place = command_descriptors.read(exporter.context.cmd_fd)
    forged = command_descriptors.make(place)
    with pytest.raises(PyverbsRDMAError) as caught:
        Context(cmd_fd=forged)
    assert caught.value.error_code == errno.EINVAL
    assert "stands for no other host's context" in str(caught.value)
    os.close(forged)


def test_descriptors_of_a_device_that_has_been_closed_stand_for_nothing(exporter):
    descriptor = os.dup(exporter.context.cmd_fd)
    other = Context(exporter.name)  # keeps the adapter
    exporter.context.close()
    with pytest.raises(PyverbsRDMAError) as caught:
        Context(cmd_fd=descriptor)
    assert caught.value.error_code == errno.EINVAL
    other.close()
    with pytest.raises(PyverbsRDMAError) as caught:
        Context(cmd_fd=descriptor)
    assert caught.value.error_code == errno.ECONNREFUSED
    os.close(descriptor)
