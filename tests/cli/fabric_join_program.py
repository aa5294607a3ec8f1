"""Hosts of a native fabric that join an IP group by RDMA CM: rank 0 sends to it, the others print what they
get, and one of them has left before the second message.
"""

import os
import socket

from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, UDParam
from softhca.verbs.qp import QPCap, QPInitAttr

GROUP, GRH, SIZE = "239.1.2.3", 40, 64
rank, addresses = int(os.environ["SOFTHCA_RANK"]), os.environ["SOFTHCA_PEERS"].split(",")
channel = CMEventChannel()
member = CMID(creator=channel, port_space=ce.RDMA_PS_UDP)
member.bind_addr(AddrInfo(src=addresses[rank], port_space=ce.RDMA_PS_UDP))


def expect(kind):
    event = CMEvent(channel)
    assert event.event_type == kind, (event.event_type, event.status)
    return event


member.resolve_addr(AddrInfo(src=addresses[rank], dst=GROUP))
expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
member.create_qp(QPInitAttr(e.IBV_QPT_UD, cap=QPCap(max_send_wr=4, max_recv_wr=4), sq_sig_all=1))
member.join_multicast(addr=AddrInfo(src=GROUP))
joined = expect(ce.RDMA_CM_EVENT_MULTICAST_JOIN)
group = UDParam(joined)
joined.ack_cm_event()
memory = member.reg_msgs(SIZE + GRH)
if rank:
    member.post_recv(memory)
    with socket.socket() as tcp:
        while tcp.connect_ex((addresses[0], 7474)):
            pass  # rank 0 does not listen yet
        lines = tcp.makefile("rw")
        member.get_recv_comp()
        os.write(1, b"%d %s\n" % (rank, memory.read(5, GRH)))
        member.post_recv(memory)
        if rank == 2:
            member.leave_multicast(AddrInfo(src=GROUP))
        print("ready", file=lines, flush=True)
        if rank == 1:
            member.get_recv_comp()
            os.write(1, b"%d %s\n" % (rank, memory.read(5, GRH)))
        lines.readline()  # rank 0 has sent all
        assert rank == 1 or member._recv_queue.cq.poll() == (0, [])
else:
    handle = AH(member.pd, attr=group.ah_attr)
    with socket.create_server((addresses[0], 7474)) as server:
        others = [server.accept()[0].makefile("rw") for _ in range(2)]
    for text in ("first", "later"):
        memory.write(text, 5)
        member.post_ud_send(memory, handle, rqpn=group.qp_num, length=5)
        member.get_send_comp()
        if text == "first":
            for each in others:
                each.readline()
    for each in others:
        print("done", file=each, flush=True)
member.close()
