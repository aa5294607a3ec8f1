"""Rank 0 writes into rank 1's memory: softhca run -n 2 -- python examples/rc_write.py"""
import os
import socket

from pyverbs import addr, cq, device, enums, mr, pd, qp, wr

rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7471)
context = device.Context(name=device.get_device_list()[0].name.decode())
domain, queue = pd.PD(context), cq.CQ(context, 8)
region = mr.MR(domain, 64, enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE)
pair = qp.QP(domain, qp.QPInitAttr(enums.IBV_QPT_RC, scq=queue, rcq=queue, cap=qp.QPCap()))
tcp = socket.socket() if rank else socket.create_server(meeting).accept()[0]
while rank and tcp.connect_ex(meeting):
    pass  # rank 0 does not listen yet
lid = context.query_port(1).lid
tcp.sendall(f"{pair.qp_num} {region.rkey} {region.buf} {lid} {context.query_gid(1, 0)}\n".encode())
number, key, address, lid, gid = tcp.makefile().readline().split()
path = qp.QPAttr()
path.dest_qp_num, path.qp_access_flags = int(number), enums.IBV_ACCESS_REMOTE_WRITE
path.ah_attr = addr.AHAttr(dlid=int(lid), is_global=1, gr=addr.GlobalRoute(addr.GID(gid)))
path.timeout, path.retry_cnt = 14, 7
pair.to_rts(path)
if rank == 0:
    region.write("hello, remote memory", 20)
    request = wr.SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[wr.SGE(region.buf, 20, region.lkey)])
    request.set_wr_rdma(int(key), int(address))
    pair.post_send(request)
    while not queue.poll()[0]:
        pass
else:
    tcp.recv(1)  # returns when rank 0 is done
    print(region.read(20, 0))
