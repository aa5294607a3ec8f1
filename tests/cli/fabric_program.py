"""Two hosts of a fabric: rank 0 writes into rank 1's memory again and again, addressed by LID, at an Ethernet
by GID, and lets links fail meanwhile.  Each prints one line of JSON.  Word: what rank 0 does.
"""

import json
import os
import socket
import sys

from pyverbs import addr, cq, device, enums, mr, pd, qp, wr

from softhca.runtime.fabric_control import ask

WHAT = sys.argv[1]
SIZE, TIMES = 20_000, 10

rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7471)
fabric, host = os.environ["SOFTHCA_FABRIC"], os.environ["SIM_HOST"]
context = device.Context(name=device.get_device_list()[0].name.decode())
domain, queue = pd.PD(context), cq.CQ(context, 16)
region = mr.MR(domain, SIZE, enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE)
pair = qp.QP(domain, qp.QPInitAttr(enums.IBV_QPT_RC, scq=queue, rcq=queue, cap=qp.QPCap()))
port = context.query_port(1)
tcp = socket.socket() if rank else socket.create_server(meeting).accept()[0]
while rank and tcp.connect_ex(meeting):
    pass  # rank 0 does not listen yet
lines = tcp.makefile("rw")
print(pair.qp_num, region.rkey, region.buf, port.lid, context.query_gid(1, 0), file=lines, flush=True)
*words, gid = lines.readline().split()
number, key, address, lid = map(int, words)
path = qp.QPAttr()
path.dest_qp_num, path.qp_access_flags = number, enums.IBV_ACCESS_REMOTE_WRITE
if port.link_layer == enums.IBV_LINK_LAYER_ETHERNET:
    path.ah_attr = addr.AHAttr(is_global=1, gr=addr.GlobalRoute(dgid=addr.GID(gid), sgid_index=0))
else:
    path.ah_attr = addr.AHAttr(dlid=lid, sl=2, is_global=0)
path.path_mtu, path.timeout, path.retry_cnt = enums.IBV_MTU_4096, 16, 7
pair.to_rts(path)
told = {
    "rank": rank, "lid": port.lid, "sm_lid": port.sm_lid, "layer": port.link_layer, "state": port.state,
    "gid": str(context.query_gid(1, 0)), "mtu": port.active_mtu, "host": host, "events": [], "states": [],
}  # fmt: skip


def write(data):
    """Write into the peer's memory; the completion's status."""
    region.write(data, len(data))
    request = wr.SendWR(opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[wr.SGE(region.buf, SIZE, region.lkey)])
    request.set_wr_rdma(key, address)
    pair.post_send(request)
    while True:
        for completion in queue.poll(1)[1]:
            return completion.status


def event(kind):
    """Wait for an asynchronous event of a kind."""
    while True:
        found = context.get_async_event()
        found.ack()
        told["events"].append(found.event_type)
        if found.event_type == kind:
            told["states"].append(context.query_port(1).state)
            return


def content(number):
    return bytes([number + 1]) * SIZE


def transmitted(end):
    """How many packets a switch's port has sent."""
    return ask(fabric, {"do": "traffic", "link": end})["traffic"][end]["xmit_pkts"]


if rank == 0:
    statuses = [write(content(number)) for number in range(TIMES)]
    if WHAT == "fail":
        ask(fabric, {"do": "fail", "link": f"{host}[1]"})
        event(enums.IBV_EVENT_PORT_ERR)
        ask(fabric, {"do": "restore", "link": f"{host}[1]"})
        event(enums.IBV_EVENT_PORT_ACTIVE)
        ends = [f"s1-0[{number}]" for number in (3, 4)]
        used = max(ends, key=transmitted)
        ask(fabric, {"do": "fail", "link": used})
        told["other"] = ends[1 - ends.index(used)]
        told["before"] = transmitted(told["other"])
    statuses += [write(content(number)) for number in range(TIMES, 2 * TIMES)]
    if WHAT == "fail":
        told["after"] = transmitted(told["other"])
    told["statuses"] = statuses
    print(len(statuses) - 1, file=lines, flush=True)
else:
    last = int(lines.readline())
    told["right"] = region.read(SIZE, 0) == content(last)
os.write(1, f"{json.dumps(told)}\n".encode())
