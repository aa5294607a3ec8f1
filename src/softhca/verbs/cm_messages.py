"""What an identifier with a queue pair of its own does for programs: regions, posting, completions."""

import errno

from softhca.driver.rdmacm.groups import UDP_QKEY
from softhca.machine.weak_members import WeakMembers
from softhca.verbs.addr import AH
from softhca.verbs.base import require
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device_enums import ibv_access_flags
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD, Identified
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP
from softhca.verbs.queue_enums import ibv_send_flags, ibv_wr_opcode
from softhca.verbs.wc import WC
from softhca.verbs.wr import SGE, RecvWR, SendWR

_SIGNALED = int(ibv_send_flags.IBV_SEND_SIGNALED)
_LOCAL_WRITE = int(ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
_REMOTE_WRITE = int(ibv_access_flags.IBV_ACCESS_REMOTE_WRITE)
_REMOTE_READ = int(ibv_access_flags.IBV_ACCESS_REMOTE_READ)


class WaitedQueue:
    """A completion queue and the channel on which it is waited for."""

    def __init__(self, pd: PD, entries: int) -> None:
        self._channel = CompChannel(pd.ctx)
        self.cq = CQ(pd.ctx, entries, channel=self._channel)

    def wait(self) -> WC:
        """The next completion."""
        armed = False
        while True:
            count, found = self.cq.poll(1)
            if count:
                return found[0]
            if armed:
                self._channel.get_cq_event(self.cq)
                self.cq.ack_events(1)
                armed = False
            else:
                self.cq.req_notify()
                armed = True

    def close(self) -> None:
        """Close both."""
        self._channel.close()


def _request(opcode: int, mr: MR, length: int, flags: int) -> SendWR:
    return SendWR(0, int(opcode), 1, 0, [SGE(mr.buf, length, mr.lkey)], flags)


class Messages(Identified):
    """The part of `CMID` that moves data."""

    __slots__ = ()

    _pd: PD | None
    _qp: QP | None
    _mrs: WeakMembers[MR]
    _send_queue: WaitedQueue | None
    _recv_queue: WaitedQueue | None

    def _queue_pair(self, what: str) -> QP:
        self._require_open()
        qp = self._qp  # once: another thread may close the CMID
        if qp is None:
            raise PyverbsRDMAError(f"{what}: the CMID has no QP", errno.EINVAL)
        return qp

    def _region(self, size: int, access: int) -> MR:
        self._require_open()
        if self._pd is None:
            raise PyverbsRDMAError("Failed to register a MR: the CMID is bound to no device", errno.EINVAL)
        mr = MR(self._pd, size, access | _LOCAL_WRITE)
        self._mrs.add(mr)
        return mr

    def reg_msgs(self, size: int) -> MR:
        """A region of ``size`` bytes for messages; closed with the CMID."""
        return self._region(size, 0)

    def reg_read(self, size: int = 0) -> MR:
        """The same, which peers may read."""
        return self._region(size, _REMOTE_READ)

    def reg_write(self, size: int = 0) -> MR:
        """The same, which peers may write to."""
        return self._region(size, _REMOTE_WRITE)

    def post_recv(self, mr: MR, length: int | None = None) -> None:
        """Receive into the region, up to ``length`` bytes of it (by default all)."""
        require(mr, MR, "mr")
        qp = self._queue_pair("Failed to Post Receive")
        qp.post_recv(RecvWR(0, 1, [SGE(mr.buf, length or mr.length, mr.lkey)]))

    def post_send(self, mr: MR, flags: int = _SIGNALED, length: int | None = None) -> None:
        """Send ``length`` bytes of the region (by default all)."""
        require(mr, MR, "mr")
        self._post(_request(ibv_wr_opcode.IBV_WR_SEND, mr, length or mr.length, flags))

    def post_read(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Read the peer's memory into the region."""
        require(mr, MR, "mr")
        wr = _request(ibv_wr_opcode.IBV_WR_RDMA_READ, mr, length, flags)
        wr.set_wr_rdma(rkey, remote_addr)
        self._post(wr)

    def post_write(self, mr: MR, length: int, remote_addr: int, rkey: int, flags: int = 0) -> None:
        """Write the region into the peer's memory."""
        require(mr, MR, "mr")
        wr = _request(ibv_wr_opcode.IBV_WR_RDMA_WRITE, mr, length, flags)
        wr.set_wr_rdma(rkey, remote_addr)
        self._post(wr)

    def post_ud_send(
        self, mr: MR, ah: AH, rqpn: int = 0, flags: int = _SIGNALED, length: int | None = None
    ) -> None:
        """Send a datagram to queue pair ``rqpn``, with the Q_Key of RDMA CM's port spaces."""
        require(mr, MR, "mr")
        require(ah, AH, "ah")
        wr = _request(ibv_wr_opcode.IBV_WR_SEND, mr, length or mr.length, flags)
        wr.set_wr_ud(ah, rqpn, UDP_QKEY)
        self._post(wr)

    def _post(self, wr: SendWR) -> None:
        self._queue_pair("Failed to Post Send").post_send(wr)

    def get_send_comp(self) -> WC:
        """The next completion of a send request, which is waited for."""
        return self._waited(self._send_queue, "send").wait()

    def get_recv_comp(self) -> WC:
        """The next completion of a receive, which is waited for."""
        return self._waited(self._recv_queue, "receive").wait()

    def _waited(self, queue: WaitedQueue | None, which: str) -> WaitedQueue:
        self._require_open()
        if queue is None:
            raise PyverbsRDMAError(
                f"Failed to retrieve {which} completion: the CMID has no CQ for it", errno.EINVAL
            )
        return queue
