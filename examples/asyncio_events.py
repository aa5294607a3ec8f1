"""Two tasks of one event loop talk over RDMA: each waits for completions by its channel's descriptor.

asyncio sleeps in epoll; a completion of either queue wakes the task that waits for it, and no thread polls.
It is written for pyverbs (whose channels have descriptors in newer releases): start it with
``softhca run -- python asyncio_events.py``, or with plain Python where there is a device.
"""
import asyncio
import errno
import os

from pyverbs import addr, cq, device, mr, pd, qp, wr
from pyverbs.libibverbs_enums import ibv_access_flags, ibv_mtu, ibv_qp_type, ibv_wc_status
from pyverbs.pyverbs_error import PyverbsRDMAError

PORT, GID_INDEX = 1, 0
ROUNDS, LENGTH = 5, 64


class End:
    """A queue pair with a completion queue, whose events an event loop waits for."""

    def __init__(self, context):
        self.domain, self.channel = pd.PD(context), cq.CompChannel(context)
        os.set_blocking(self.channel.fd, False)  # get_cq_event takes what is there and never waits
        self.queue = cq.CQ(context, 16, channel=self.channel)
        self.memory = mr.MR(self.domain, LENGTH, ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)
        cap = qp.QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        kind = qp.QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=cap)
        self.pair = qp.QP(self.domain, kind)
        self.changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self.channel.fd, self.on_readable)
        self.queue.req_notify()

    def on_readable(self):
        """The descriptor is readable: take the events, and arm the queue again."""
        try:
            while True:
                self.channel.get_cq_event(self.queue)
                self.queue.ack_events(1)
        except PyverbsRDMAError as error:
            if error.error_code != errno.EAGAIN:  # which says that there are no more
                raise
        self.queue.req_notify()
        self.changed.set()

    async def completion(self):
        """The next completion; other tasks run until it is there."""
        while True:
            self.changed.clear()
            count, found = self.queue.poll(1)
            if count:
                assert found[0].status == ibv_wc_status.IBV_WC_SUCCESS
                return found[0]
            await self.changed.wait()

    def element(self):
        return [wr.SGE(self.memory.buf, LENGTH, self.memory.lkey)]

    async def send(self, text):
        self.memory.write(text.ljust(LENGTH), LENGTH)
        self.pair.post_send(wr.SendWR(num_sge=1, sg=self.element()))
        await self.completion()

    async def receive(self):
        await self.completion()
        text = self.memory.read(LENGTH, 0).decode().rstrip()
        self.pair.post_recv(wr.RecvWR(num_sge=1, sg=self.element()))
        return text


async def main():
    with device.Context(name=device.get_device_list()[0].name.decode()) as context:
        asking, answering = End(context), End(context)
        route = addr.GlobalRoute(context.query_gid(PORT, GID_INDEX), sgid_index=GID_INDEX)
        here = addr.AHAttr(gr=route, is_global=1, port_num=PORT)
        for one, other in ((asking, answering), (answering, asking)):
            path = qp.QPAttr(port_num=PORT)
            path.dest_qp_num, path.ah_attr, path.path_mtu = other.pair.qp_num, here, ibv_mtu.IBV_MTU_1024
            path.timeout, path.retry_cnt, path.rnr_retry = 14, 7, 7
            one.pair.to_rts(path)
            one.pair.post_recv(wr.RecvWR(num_sge=1, sg=one.element()))

        async def answer():
            for _ in range(ROUNDS):
                await answering.send("answer to " + await answering.receive())

        task = asyncio.create_task(answer())
        for number in range(ROUNDS):
            await asking.send(f"question {number}")
            print(await asking.receive())
        await task
        for end in (asking, answering):
            asyncio.get_running_loop().remove_reader(end.channel.fd)


asyncio.run(main())
