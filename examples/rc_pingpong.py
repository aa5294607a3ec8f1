"""Ping-pong of SENDs over a reliable connection, asleep on a completion channel: ibv_rc_pingpong -e.

``rc_pingpong.py [--gid-index N]`` waits for a peer, ``rc_pingpong.py HOST`` is one; they tell each other
their queue pairs over TCP.  It is written for pyverbs: start it with
``softhca run -- python rc_pingpong.py …``, or with plain Python where there is a device.
"""

import argparse
import json
import socket
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 18515
FIRST_PSN = 1000
SENT, RECEIVED = 1, 2  # wr_id


class End:
    """One end: a queue pair, a buffer, and a channel that wakes it."""

    def __init__(self, size, gid_index):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.mr = MR(self.pd, 2 * size, e.IBV_ACCESS_LOCAL_WRITE)
        self.channel = CompChannel(self.context)
        self.cq = CQ(self.context, 16, None, self.channel, 0)
        self.cq.req_notify()
        attributes = QPInitAttr(
            qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=1, max_recv_wr=1)
        )
        self.qp = QP(self.pd, attributes)
        self.complete = {SENT: 0, RECEIVED: 0}
        self.size = size
        self.gid_index = gid_index
        self.lid = self.context.query_port(1).lid  # 0 on RoCE
        self.gid = str(self.context.query_gid(1, gid_index))

    def connect(self, peer):
        """Go to RTS with what the peer has told."""
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.gid_index)
        attributes = QPAttr(port_num=1)
        attributes.dest_qp_num = peer["qp"]
        attributes.rq_psn = attributes.sq_psn = FIRST_PSN
        attributes.path_mtu = self.context.query_port(1).active_mtu
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
        attributes.ah_attr = AHAttr(dlid=peer["lid"], gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attributes)

    def expect(self):
        """Have a receive ready, for the second half of the buffer."""
        element = SGE(self.mr.buf + self.size, self.size, self.mr.lkey)
        self.qp.post_recv(RecvWR(wr_id=RECEIVED, num_sge=1, sg=[element]))

    def send(self, data):
        """Send ``data`` from the first half."""
        self.mr.write(data, len(data))
        element = SGE(self.mr.buf, self.size, self.mr.lkey)
        self.qp.post_send(SendWR(wr_id=SENT, opcode=e.IBV_WR_SEND, num_sge=1, sg=[element]))

    def wait(self, kind):
        """Sleep until a send or a receive is complete."""
        while not self.complete[kind]:
            done, completions = self.cq.poll(2)
            for completion in completions:
                if completion.status != e.IBV_WC_SUCCESS:
                    raise SystemExit(f"a request failed with status {completion.status}")
                self.complete[completion.wr_id] += 1
            if not done:
                self.channel.get_cq_event(self.cq)
                self.cq.ack_events(1)
                self.cq.req_notify()
        self.complete[kind] -= 1

    def received(self):
        """What has come."""
        self.wait(RECEIVED)
        return self.mr.read(self.size, self.size)


def meet(host, port):
    """A TCP connection to the peer, or from it."""
    if host:
        return socket.create_connection((host, port))
    with socket.create_server(("", port)) as server:
        print(f"waiting at TCP port {server.getsockname()[1]}", flush=True)
        return server.accept()[0]


def exchange(connection, lines, own):
    """Tell the peer ``own`` and hear what it tells, in the next of its ``lines``."""
    connection.sendall(json.dumps(own).encode() + b"\n")
    return json.loads(lines.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host", nargs="?", default="")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--gid-index", type=int, default=0)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--iters", type=int, default=1000)
    options = parser.parse_args()
    end = End(options.size, options.gid_index)
    with meet(options.host, options.port) as connection, connection.makefile("r") as lines:
        end.connect(exchange(connection, lines, {"qp": end.qp.qp_num, "lid": end.lid, "gid": end.gid}))
        end.expect()
        exchange(connection, lines, "ready")
        begin = time.perf_counter()
        for number in range(options.iters):
            data = bytes([number % 251]) * options.size
            if options.host:
                end.send(data)
            if end.received() != data:
                raise SystemExit(f"message {number} is not what was sent")
            end.expect()
            if not options.host:
                end.send(data)
            end.wait(SENT)
        seconds = time.perf_counter() - begin
        exchange(connection, lines, "done")
    print(f"{options.iters} round trips of {options.size} bytes, {seconds / options.iters * 1e6:.1f} µs each")


if __name__ == "__main__":
    main()
