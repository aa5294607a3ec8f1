"""Another process, which imports what it is told: ``python importing_program.py DESCRIPTOR PD MR PEER``.

``DESCRIPTOR`` stands for an open device of the process that has started it; ``PD``, ``MR`` are handles there.
It imports them, makes a queue pair of its own in the domain, and connects it to the queue pair ``PEER`` of
that device; each line of its standard input is then a call of one of the functions below with these words,
and each line that it prints is what that gave.
"""

import errno
import json
import sys

from softhca.driver.errors import DriverError
from softhca.testing.verbs import ALL_ACCESS
from softhca.verbs import enums as e
from softhca.verbs.addr import AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import DM, Context
from softhca.verbs.mr import DMMR, MR, MW, MWBindInfo
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR


class Importer:
    def __init__(self, descriptor, pd, mr):
        self.context = Context(cmd_fd=int(descriptor))
        self.pd = PD(self.context, handle=int(pd))
        self.mr = MR(self.pd, handle=int(mr))
        self.cq = CQ(self.context, 16)
        cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def connect(self, peer):
        """To a queue pair of the same port."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = ALL_ACCESS, int(peer), 3
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        route = GlobalRoute(dgid=self.context.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=route)
        self.qp.to_rts(attr)
        return self.qp.qp_num

    def keys(self):
        """What the imported region says of itself."""
        return [self.mr.lkey, self.mr.rkey, self.mr.length, self.mr.buf]

    def write(self, address, key, remote, length):
        """Write from the imported region, whose first byte requests name ``address``."""
        wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(int(address), int(length), self.mr.lkey)])
        wr.set_wr_rdma(int(key), int(remote))
        return self.request(wr)

    def request(self, wr):
        """Post it; the status of its completion."""
        self.qp.post_send(wr)
        while not (found := self.cq.poll(1))[0]:
            pass
        return found[1][0].status

    def bind(self, address, length):
        """Bind a window of this process to the imported region."""
        self.window = MW(self.pd, e.IBV_MW_TYPE_2)
        wr = SendWR(opcode=e.IBV_WR_BIND_MW)
        wr.set_bind_wr(
            self.window, MWBindInfo(self.mr, int(address), int(length), e.IBV_ACCESS_REMOTE_WRITE)
        )
        return self.request(wr)

    def refused(self, what, number):
        """The errno with which an import of another number is refused; 0: it is not."""
        kinds = {"pd": lambda n: PD(self.context, handle=n), "mr": lambda n: MR(self.pd, handle=n),
                 "dm": lambda n: DM(self.context, handle=n)}  # fmt: skip
        try:
            kinds[what](int(number))
        except PyverbsRDMAError as error:
            return error.error_code
        return 0

    def import_dm(self, handle):
        """Import device memory; its length."""
        self.dm = DM(self.context, handle=int(handle))
        return self.dm.stretch.length

    def read_dm(self, offset, length):
        """A copy of its bytes."""
        return self.dm.copy_from_dm(int(offset), int(length)).hex()

    def write_dm(self, offset, data):
        """Copy bytes into it."""
        data = bytes.fromhex(data)
        self.dm.copy_to_dm(int(offset), data, len(data))
        return len(data)

    def register_dm(self, offset, length):
        """A region of this process over the imported memory, in the imported domain."""
        self.over = DMMR(self.pd, int(length), ALL_ACCESS | e.IBV_ACCESS_ZERO_BASED, self.dm, int(offset))
        return self.over.rkey

    def end_dm(self):
        """Close the region and end the import."""
        if getattr(self, "over", None) is not None:
            self.over.close()
        self.dm.unimport()
        return True

    def register(self):
        """A region of this process in the imported domain."""
        self.own = MR(self.pd, 4096, ALL_ACCESS)
        return [self.own.rkey, self.own.buf]

    def free_pd(self):
        """What freeing the imported domain as one's own gives: an errno."""
        try:
            self.context.driver.dealloc_pd(self.pd.handle)
        except DriverError as error:
            return error.errno
        return 0

    def close(self):
        """End all imports."""
        self.mr.unimport()
        self.pd.unimport()
        self.context.close()
        return True

    def forget(self):
        """Close the context alone."""
        self.context.close()
        return True


def main(descriptor, pd, mr):
    try:
        importer = Importer(descriptor, pd, mr)
    except PyverbsRDMAError as error:
        print(json.dumps({"errno": error.error_code, "name": errno.errorcode[error.error_code]}), flush=True)
        return
    print(json.dumps({"qp": importer.qp.qp_num}), flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        print(json.dumps(getattr(importer, call["call"])(*call["words"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
