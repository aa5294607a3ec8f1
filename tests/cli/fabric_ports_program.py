"""A host with two ports on a fabric: rank 0 writes into rank 1's memory from each of its ports to each of
rank 1's, addressed by LID.  Each prints one line of JSON."""

import json
import os
import socket
import sys

from pyverbs import addr, cq, device, enums, mr, pd, qp, wr

rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7471)
context = device.Context(name=device.get_device_list()[0].name.decode())
domain, queue = pd.PD(context), cq.CQ(context, 16)
ports = [context.query_port(number) for number in (1, 2)]
tcp = socket.socket() if rank else socket.create_server(meeting).accept()[0]
while rank and tcp.connect_ex(meeting):
    pass  # rank 0 does not listen yet
lines, answers = tcp.makefile("w"), tcp.makefile("r")
region = mr.MR(domain, 16, enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE)
seen = []
for own in (1, 2):
    for other in (1, 2):
        pair = qp.QP(domain, qp.QPInitAttr(enums.IBV_QPT_RC, scq=queue, rcq=queue, cap=qp.QPCap()))
        mine = own if rank == 0 else other
        print(pair.qp_num, region.rkey, region.buf, ports[mine - 1].lid, file=lines, flush=True)
        number, key, address, lid = map(int, answers.readline().split())
        path = qp.QPAttr(port_num=mine)
        path.dest_qp_num, path.qp_access_flags = number, enums.IBV_ACCESS_REMOTE_WRITE
        path.ah_attr = addr.AHAttr(dlid=lid, is_global=0, port_num=mine)
        path.path_mtu, path.timeout, path.retry_cnt = enums.IBV_MTU_4096, 16, 7
        pair.to_rts(path)
        print("ready", file=lines, flush=True)
        answers.readline()
        if rank == 0:
            region.write(bytes([own, other]), 2)
            piece = wr.SGE(region.buf, 2, region.lkey)
            request = wr.SendWR(num_sge=1, sg=[piece], opcode=enums.IBV_WR_RDMA_WRITE)
            request.set_wr_rdma(key, address)
            pair.post_send(request)
            while not (polled := queue.poll()[1]):
                pass
            assert polled[0].status == 0, polled[0].status
        print("done", file=lines, flush=True)
        answers.readline()
        seen.append(list(region.read(2, 0)))
told = {
    "rank": rank, "lids": [port.lid for port in ports], "states": [port.state for port in ports],
    "gids": [str(context.query_gid(number, 0)) for number in (1, 2)], "seen": seen,
}  # fmt: skip
sys.stdout.write(json.dumps(told) + "\n")  # in one piece: both write into one pipe
