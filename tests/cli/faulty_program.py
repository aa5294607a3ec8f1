"""Rank 0 writes into rank 1's memory, many times; both print one line of JSON: is the data right, what was
counted, with what status the last request ended.  Words: number of writes, time-out code, retries.
"""

import hashlib
import json
import os
import socket
import sys

from pyverbs import addr, cq, device, enums, mr, pd, qp, wr

WRITES, TIMEOUT, RETRIES = map(int, sys.argv[1:4])
SIZE, DEPTH = 2048, 16

rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7471)
context = device.Context(name=device.get_device_list()[0].name.decode())
domain, queue = pd.PD(context), cq.CQ(context, 2 * DEPTH)
region = mr.MR(domain, WRITES * SIZE, enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE)
kind = qp.QPInitAttr(enums.IBV_QPT_RC, scq=queue, rcq=queue, cap=qp.QPCap(max_send_wr=DEPTH))
pair = qp.QP(domain, kind)
tcp = socket.socket() if rank else socket.create_server(meeting).accept()[0]
while rank and tcp.connect_ex(meeting):
    pass  # rank 0 does not listen yet
lines = tcp.makefile("rw")
print(pair.qp_num, region.rkey, region.buf, context.query_gid(1, 0), file=lines, flush=True)
number, key, address, gid = lines.readline().split()
path = qp.QPAttr()
path.dest_qp_num, path.qp_access_flags = int(number), enums.IBV_ACCESS_REMOTE_WRITE
path.ah_attr = addr.AHAttr(is_global=1, gr=addr.GlobalRoute(addr.GID(gid)))
path.timeout, path.retry_cnt = TIMEOUT, RETRIES
pair.to_rts(path)

expected = b"".join(hashlib.shake_128(bytes([at & 255, at >> 8])).digest(SIZE) for at in range(WRITES))
status = 0
if rank == 0:
    region.write(expected, len(expected))
    posted = done = 0
    while done < WRITES and not status:
        while posted < WRITES and posted - done < DEPTH:
            element = wr.SGE(region.buf + posted * SIZE, SIZE, region.lkey)
            request = wr.SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[element])
            request.set_wr_rdma(int(key), int(address) + posted * SIZE)
            pair.post_send(request)
            posted += 1
        for completion in queue.poll(DEPTH)[1]:
            status = status or completion.status
            done += 1
    print(status, file=lines, flush=True)
else:
    status = int(lines.readline())
right = region.read(len(expected), 0) == expected
line = json.dumps({"rank": rank, "right": right, "status": status, "counters": context.query_counters(1)})
os.write(1, f"{line}\n".encode())
