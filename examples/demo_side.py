"""One side of a pair of verbs programs: how it finds its partner, and what it sets up on its adapter."""

import ctypes
import json
import random
import socket
import time
from select import select

from pyverbs import enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 18600
SERVICES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
QKEY = 0x11111111
GRH_BYTES = 40  # in front of every datagram received
IMMEDIATE = 0x5EED
PATIENCE_S = 20.0


class Partner:
    """The other copy, at the far end of a TCP connection; says and hears one JSON value a line."""

    def __init__(self, rank, peers):
        if rank == 0:
            with socket.create_server((peers[0], PORT)) as listener:
                listener.settimeout(PATIENCE_S)
                connection, _ = listener.accept()
        else:
            connection = self._connect(peers[0])
        connection.settimeout(PATIENCE_S)
        self.connection = connection
        self.lines = connection.makefile("r")

    @staticmethod
    def _connect(address):
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return socket.create_connection((address, PORT), timeout=PATIENCE_S)
            except ConnectionRefusedError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.02)

    def say(self, value):
        self.connection.sendall(json.dumps(value).encode() + b"\n")

    def hear(self):
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the other copy has gone")
        return json.loads(line)

    def has_spoken(self):
        return bool(select([self.connection], [], [], 0)[0])

    def swap(self, value):
        self.say(value)
        return self.hear()


class Side:
    """One copy's device, memory and a queue pair of each service, joined to the partner's."""

    def __init__(self, partner, memory_bytes):
        self.partner = partner
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.mr = MR(self.pd, memory_bytes, ACCESS)
        self.address = self.mr.buf
        self.memory = memoryview((ctypes.c_ubyte * memory_bytes).from_address(self.address)).cast("B")
        self.cq = CQ(self.context, 256)
        self.qps = {name: self._queue_pair(kind) for name, kind in SERVICES.items()}
        self.psn = random.randrange(1 << 24)
        mine = {
            "qpns": {name: qp.qp_num for name, qp in self.qps.items()},
            "psn": self.psn,
            "gid": self.context.query_gid(1, 0).gid,
            "name": get_device_list()[0].name.decode(),
            "mtu_bytes": 128 << self.context.query_port(1).active_mtu,
            "rkey": self.mr.rkey,
            "address": self.address,
        }
        self.mine, self.other = mine, partner.swap(mine)
        for name, qp in self.qps.items():
            self._connect(name, qp)
        partner.swap("connected")

    def _queue_pair(self, kind):
        caps = QPCap(max_send_wr=64, max_recv_wr=64, max_send_sge=1, max_recv_sge=1)
        return QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=caps, sq_sig_all=1))

    def _connect(self, name, qp):
        route = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=GID(self.other["gid"]), hop_limit=64))
        attributes = QPAttr(port_num=1)
        attributes.sq_psn = self.psn
        if name == "ud":
            attributes.qkey = QKEY
            self.handle = AH(self.pd, attr=route)
        else:
            attributes.qp_access_flags = ACCESS
            attributes.ah_attr = route
            attributes.path_mtu = self.context.query_port(1).active_mtu
            attributes.dest_qp_num = self.other["qpns"][name]
            attributes.rq_psn = self.other["psn"]
            attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
            attributes.min_rnr_timer, attributes.timeout = 12, 14
            attributes.retry_cnt = attributes.rnr_retry = 7
        qp.to_rts(attributes)

    def request(self, name, opcode, length, offset=0, target=0, atomic=(0, 0)):
        """A send work request of ``length`` bytes at ``offset`` of our memory, to ``target`` of theirs."""
        element = SGE(self.address + offset, length, self.mr.lkey)
        request = SendWR(opcode=opcode, num_sge=1, sg=[element], imm_data=IMMEDIATE)
        place = self.other["rkey"], self.other["address"] + target
        if name == "ud":
            request.set_wr_ud(self.handle, self.other["qpns"]["ud"], QKEY)
        elif opcode in (e.IBV_WR_ATOMIC_CMP_AND_SWP, e.IBV_WR_ATOMIC_FETCH_AND_ADD):
            request.set_wr_atomic(*place, *atomic)
        elif opcode not in (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM):
            request.set_wr_rdma(*place)
        return request

    def post(self, name, *request, **places):
        """Post one send work request, as `request` makes it."""
        self.qps[name].post_send(self.request(name, *request, **places))

    def receive(self, length, offset=0):
        """A receive work request."""
        return RecvWR(num_sge=1, sg=[SGE(self.address + offset, length, self.mr.lkey)])

    def post_receive(self, name, length, offset=0):
        self.qps[name].post_recv(self.receive(length, offset))

    def polled(self):
        """A completion, which must be a success, or None where there is none yet."""
        count, completions = self.cq.poll(1)
        if not count:
            return None
        if completions[0].status != e.IBV_WC_SUCCESS:
            raise RuntimeError(f"completion with status {completions[0].status}")
        return completions[0]

    def completion(self):
        """The next completion."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            completion = self.polled()
            if completion:
                return completion
        raise TimeoutError("no completion")
