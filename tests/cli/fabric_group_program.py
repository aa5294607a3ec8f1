"""Hosts of a fabric join a multicast group by subnet administration; rank 0 sends to it, the others print
what they get.
"""

import os
import socket

from pyverbs import addr, cq, device, enums, mr, pd, qp, wr

from softhca.management import administration_attributes as a
from softhca.management import constants as c
from softhca.management.administration_tables import component
from softhca.verbs.mad import Mad, MadAddress, MadAgent, MadHeader

MGID = bytes.fromhex("ff12401bffff000000000000000000aa")
WHO = ("mgid", "port_gid", "join_state", "qkey", "traffic_class", "pkey", "sl", "flow_label")
QKEY, GRH_BYTES = 0x1234, 40
rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7473)
context = device.Context(name=device.get_device_list()[0].name.decode())
port = context.query_port(1)
own = addr.GID(str(context.query_gid(1, 0)))
agent = MadAgent(context, 1, c.CLASS_SUBN_ADM, a.CLASS_VERSION)
record = a.MCMemberRecord(
    mgid=MGID, port_gid=bytes.fromhex(own.gid.replace(":", "")), qkey=QKEY, pkey=0xFFFF, join_state=1
)
second = a.AdministrationHeader(component_mask=sum(component(a.MCMemberRecord, name) for name in WHO))
header = MadHeader(
    management_class=c.CLASS_SUBN_ADM, class_version=a.CLASS_VERSION, method=c.METHOD_SET,
    attribute_id=a.ATTRIBUTE_MC_MEMBER_RECORD, transaction_id=7,
)  # fmt: skip
asked = (header.encode() + second.encode() + record.encode()).ljust(256, b"\0")
answer = agent.ask(Mad.decode(asked), MadAddress(dlid=port.sm_lid))
assert answer.header.status == 0, answer.header
mlid = a.MCMemberRecord.decode(answer.encode(), 56).mlid

domain, queue = pd.PD(context), cq.CQ(context, 8)
region = mr.MR(domain, 1024, enums.IBV_ACCESS_LOCAL_WRITE)
pair = qp.QP(domain, qp.QPInitAttr(enums.IBV_QPT_UD, scq=queue, rcq=queue, cap=qp.QPCap()))
ready = qp.QPAttr(port_num=1)
ready.qkey = QKEY
pair.to_rts(ready)
context.driver.attach_mcast(pair.qp_num, MGID, mlid)
if rank:
    pair.post_recv(wr.RecvWR(num_sge=1, sg=[wr.SGE(region.buf, 512, region.lkey)]))
    with socket.socket() as tcp:
        while tcp.connect_ex(meeting):
            pass  # rank 0 does not listen yet
    while not queue.poll()[0]:
        pass
    os.write(1, b"%d %s\n" % (rank, region.read(9, GRH_BYTES)))
else:
    with socket.create_server(meeting) as server:
        for _ in range(2):
            server.accept()[0].close()  # each has joined
    route = addr.GlobalRoute(dgid=addr.GID(MGID.hex(":", 2)), hop_limit=1)
    handle = addr.AH(domain, attr=addr.AHAttr(dlid=mlid, is_global=1, gr=route, port_num=1))
    region.write("hello all", 9)
    request = wr.SendWR(opcode=enums.IBV_WR_SEND, num_sge=1, sg=[wr.SGE(region.buf, 9, region.lkey)])
    request.set_wr_ud(handle, 0xFFFFFF, QKEY)
    pair.post_send(request)
    while not queue.poll()[0]:
        pass
