"""Ping-pong of unreliable datagrams: what ibv_ud_pingpong does.

``ud_pingpong.py [--gid-index N]`` waits for a peer, ``ud_pingpong.py HOST`` is one; they tell each other
their queue pairs over TCP.  A datagram may be lost: the client sends it again.  It is written for pyverbs:
start it with ``softhca run -- python ud_pingpong.py …``, or with plain Python where there is a device.
"""

import argparse
import json
import socket
import time

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 18515
FIRST_PSN = 1000
SENT, RECEIVED = 1, 2  # wr_id
QKEY = 0x11111111
GRH_BYTES = 40
LOST_S = 1.0
"""After so long without an answer a datagram is sent again."""
FOREVER_S = 60.0


class End:
    """One end: a datagram queue pair and a buffer, whose second half receives."""

    def __init__(self, size, gid_index):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.mr = MR(self.pd, 2 * size + GRH_BYTES, e.IBV_ACCESS_LOCAL_WRITE)
        self.cq = CQ(self.context, 16)
        attributes = QPInitAttr(
            qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=QPCap(max_send_wr=1, max_recv_wr=1)
        )
        self.qp = QP(self.pd, attributes)
        ready = QPAttr(port_num=1)
        ready.qkey, ready.sq_psn = QKEY, FIRST_PSN
        self.qp.to_rts(ready)
        self.size = size
        self.gid_index = gid_index
        self.lid = self.context.query_port(1).lid  # 0 on RoCE
        self.gid = str(self.context.query_gid(1, gid_index))
        self.complete = {SENT: 0, RECEIVED: 0}

    def address(self, peer):
        """Where datagrams go from now on."""
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.gid_index, hop_limit=64)
        self.handle = AH(self.pd, attr=AHAttr(dlid=peer["lid"], gr=route, is_global=1, port_num=1))
        self.peer = peer["qp"]

    def expect(self):
        """Have a receive ready: the first bytes of what comes are its global route header."""
        element = SGE(self.mr.buf + self.size, self.size + GRH_BYTES, self.mr.lkey)
        self.qp.post_recv(RecvWR(wr_id=RECEIVED, num_sge=1, sg=[element]))

    def send(self, data):
        """Send ``data``, and wait until they have left."""
        self.mr.write(data, len(data))
        element = SGE(self.mr.buf, self.size, self.mr.lkey)
        request = SendWR(wr_id=SENT, opcode=e.IBV_WR_SEND, num_sge=1, sg=[element])
        request.set_wr_ud(self.handle, self.peer, QKEY)
        self.qp.post_send(request)
        self.wait(SENT, FOREVER_S)

    def wait(self, kind, seconds):
        """Whether a send or a receive is complete within so long."""
        end = time.perf_counter() + seconds
        while not self.complete[kind] and time.perf_counter() < end:
            for completion in self.cq.poll(2)[1]:
                if completion.status != e.IBV_WC_SUCCESS:
                    raise SystemExit(f"a request failed with status {completion.status}")
                self.complete[completion.wr_id] += 1
        if not self.complete[kind]:
            return False
        self.complete[kind] -= 1
        return True

    def received(self, seconds):
        """What has come within so long; None: nothing."""
        if not self.wait(RECEIVED, seconds):
            return None
        found = self.mr.read(self.size, self.size + GRH_BYTES)
        self.expect()
        return found


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


def ask(end, count):
    """Send ``count`` datagrams, each until its answer comes."""
    for number in range(count):
        data = number.to_bytes(4, "big") + bytes([number % 251]) * (end.size - 4)
        found = None
        while found != data:  # also an answer that comes late, to one that was sent twice
            if found is None:
                end.send(data)
            found = end.received(LOST_S)


def answer(end, count):
    """Send back what comes, until the last of ``count`` is answered."""
    number = -1
    while number + 1 < count:
        found = end.received(FOREVER_S)
        if found is None:
            raise SystemExit("the peer is gone")
        number = int.from_bytes(found[:4], "big")
        if found[4:] != bytes([number % 251]) * (end.size - 4):
            raise SystemExit(f"datagram {number} is not what was sent")
        end.send(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host", nargs="?", default="")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--gid-index", type=int, default=0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--iters", type=int, default=1000)
    options = parser.parse_args()
    end = End(options.size, options.gid_index)
    with meet(options.host, options.port) as connection, connection.makefile("r") as lines:
        end.address(exchange(connection, lines, {"qp": end.qp.qp_num, "lid": end.lid, "gid": end.gid}))
        end.expect()
        exchange(connection, lines, "ready")
        begin = time.perf_counter()
        (ask if options.host else answer)(end, options.iters)
        seconds = time.perf_counter() - begin
        exchange(connection, lines, "done")
    print(f"{options.iters} round trips of {options.size} bytes, {seconds / options.iters * 1e6:.1f} µs each")


if __name__ == "__main__":
    main()
