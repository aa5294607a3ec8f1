"""Two devices, each with an IPv4 and an IPv6 address of one port: what goes by both.

``python two_versions_program.py MODE FIRST SECOND FIRST SECOND`` runs all, and says by one JSON object what
was found; the addresses are the left device's, then the right one's.
"""

import errno
import ipaddress
import json
import sys
from contextlib import ExitStack

from cm_identifiers import TCP, UDP, code_of, connected, expect

from softhca.driver import registry
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, GlobalRoute
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, UDParam
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.gid import GID
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

NAMES = ("left", "right")
GROUPS = {4: "239.88.77.67", 6: "ff1e::17"}
QKEY = 0x11
GRH = 40
ROUNDS, TRIES = 40, 200
SIZE = 5000


def gid_of(address):
    packed = ipaddress.ip_address(address).packed
    return GID.from_bytes(packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed)


def header_of(data):
    """Source and destination in the area of a GRH, as text."""
    words = (data[8:24], data[24:40]) if data[0] >> 4 == 6 else (data[32:36], data[36:40])
    return [str(ipaddress.ip_address(bytes(each))) for each in words]


class End:
    def __init__(self, context, kind=e.IBV_QPT_RC):
        self.pd = PD(context)
        self.cq = CQ(context, 64)
        self.mr = MR(self.pd, 2 * SIZE, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        self.qp = QP(self.pd, QPInitAttr(kind, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8, 1, 1)))

    def close(self):
        for each in (self.qp, self.cq, self.mr, self.pd):
            each.close()

    def receive(self, length=SIZE):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, length, self.mr.lkey)]))

    def send(self, length, ah=None, qpn=0):
        wr = SendWR(num_sge=1, sg=[SGE(self.mr.buf, length, self.mr.lkey)])
        if ah is not None:
            wr.set_wr_ud(ah, qpn, QKEY)
        self.qp.post_send(wr)

    def completion(self):
        while True:
            count, found = self.cq.poll()
            if count:
                assert found[0].status == e.IBV_WC_SUCCESS, found[0]
                return found[0]


def path(address, index):
    route = GlobalRoute(dgid=gid_of(address), sgid_index=index, hop_limit=2)
    return AHAttr(is_global=1, port_num=1, gr=route)


def connect(one, other, addresses, index):
    for own, peer, address in ((one, other, addresses[1]), (other, one, addresses[0])):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attr.path_mtu, attr.dest_qp_num, attr.ah_attr = e.IBV_MTU_1024, peer.qp.qp_num, path(address, index)
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 1
        own.qp.to_rts(attr)


def both_at_once(contexts, places, own):
    """A connection by each version; their messages of several packets are under way together."""
    pairs = []
    for index in (0, 1):
        ends = [own(End(context)) for context in contexts]
        connect(*ends, [each[index] for each in places], index)
        pairs.append(ends)
    arrived = [0, 0]
    for number in range(ROUNDS):
        for index, (one, other) in enumerate(pairs):
            one.mr.write(bytes([number, index]) * (SIZE // 2), SIZE)
            other.receive()
            one.send(SIZE)
        for index, (one, other) in enumerate(pairs):
            one.completion()
            assert other.completion().byte_len == SIZE
            arrived[index] += other.mr.read(SIZE, 0) == bytes([number, index]) * (SIZE // 2)
    return arrived, [in_memory(*pair) for pair in pairs]


def in_memory(one, other):
    """Whether RDMA WRITEs come to be carried out in shared memory, within as many as meeting may take."""
    engine = devices.find(NAMES[0]).engine
    for _ in range(TRIES):
        wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(one.mr.buf, 64, one.mr.lkey)])
        wr.set_wr_rdma(other.mr.rkey, other.mr.buf)
        one.qp.post_send(wr)
        one.completion()
        if engine is None:
            continue
        executor = engine.adapter.queue_pairs[one.qp.qp_num].executor
        if executor is not None and executor.operations:
            return True
    return False


def datagrams(contexts, places, own):
    """By each version, and the answer to what its GRH says."""
    one, other = (own(End(context, e.IBV_QPT_UD)) for context in contexts)
    for end in (one, other):
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        end.qp.to_rts(attr)
    found = []
    for index in (0, 1):
        other.receive()
        one.send(100, own(AH(one.pd, attr=path(places[1][index], index))), other.qp.qp_num)
        one.completion()
        taken = other.completion()
        found.append(header_of(other.mr.read(GRH, 0)))
        one.receive()
        other.send(100, own(AH(other.pd, wc=taken, grh=other.mr.buf, port_num=1)), one.qp.qp_num)
        other.completion()
        one.completion()
        found.append(header_of(one.mr.read(GRH, 0)))
    refused = [code_of(AH, one.pd, attr=path(places[1][1 - index], index)) for index in (0, 1)]
    return found, [errno.errorcode[each] for each in refused]


def by_cm(places, own):
    """RDMA CM between the addresses of each version, as connections and as datagrams."""
    found = []
    for index in (0, 1):
        for space in (TCP, UDP):
            one, other, *_ = connected(places[0][index], places[1][index], own, space)
            if space == TCP:
                kept, data = own(MR(other.pd, 64, 1)), own(MR(one.pd, 64, 1))
                other.post_recv(kept, 64)
                one.post_send(data, 0, 12)
                assert one.get_send_comp().status == e.IBV_WC_SUCCESS
                found.append(other.get_recv_comp().byte_len)
            else:
                found.append("resolved")
    return found


def groups(places, own):
    """A group of each version: who is at one device hears the other one, and from which address."""
    found = []
    for index, version in enumerate((4, 6)):
        members = []
        for place in places:
            channel = own(CMEventChannel())
            cmid = own(CMID(creator=channel, port_space=UDP))
            cmid.bind_addr(AddrInfo(src=place[index], port_space=UDP, flags=ce.RAI_PASSIVE))
            cmid.create_qp(QPInitAttr(e.IBV_QPT_UD, cap=QPCap(max_recv_wr=4)))
            cmid.join_multicast(addr=AddrInfo(src=GROUPS[version], port_space=UDP, flags=ce.RAI_PASSIVE))
            members.append((cmid, UDParam(expect(channel, ce.RDMA_CM_EVENT_MULTICAST_JOIN))))
        (sender, to_group), (taker, _) = members
        kept, data = taker.reg_msgs(100 + GRH), sender.reg_msgs(100)
        taker.post_recv(kept)
        ah = own(AH(sender.pd, attr=to_group.ah_attr))
        sender.post_ud_send(data, ah, rqpn=to_group.qp_num, length=100)
        assert sender.get_send_comp().status == e.IBV_WC_SUCCESS
        taker.get_recv_comp()
        found.append(header_of(kept.read(GRH, 0)))
        kept.close()
        data.close()
    return found


def main(mode, *addresses):
    places = addresses[:2], addresses[2:]
    devices.add(
        ",".join(f"{n}=udp:{first}?addresses={more}" for n, (first, more) in zip(NAMES, places, strict=True)),
        mode,
    )
    found = {}
    with ExitStack() as stack:

        def own(made):
            stack.callback(made.close)
            return made

        for name in NAMES:
            own(registry.open_device(name))
        contexts = [own(Context(name=name)) for name in NAMES]
        found["at once"], found["in memory"] = both_at_once(contexts, places, own)
        found["datagrams"], found["other version"] = datagrams(contexts, places, own)
        found["cm"] = by_cm(places, own)
        found["groups"] = groups(places, own)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
