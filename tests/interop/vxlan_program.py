"""Asks who has an address on a VXLAN segment, by a raw packet queue pair.

``vxlan_program.py ADDRESS SECONDS`` prints the answering station's address (ARP, RFC 826), or that nobody has
answered for so long.
"""

from __future__ import annotations

import ipaddress
import sys
import time

from softhca.verbs import cq, device, enums, mr, pd, qp, wr
from softhca.verbs.flow import Flow, FlowAttr

STATION = bytes.fromhex("020000000001")
ROOM, RECEIVES = 2048, 32
EVERY_S = 0.2


def main(address: str, limit_s: float) -> None:
    context = device.Context(name="softhca0")
    domain = pd.PD(context)
    completions = cq.CQ(context, 2 * RECEIVES)
    capabilities = qp.QPCap(max_send_wr=RECEIVES, max_recv_wr=RECEIVES)
    kind = qp.QPInitAttr(enums.IBV_QPT_RAW_PACKET, scq=completions, rcq=completions, cap=capabilities)
    pair = qp.QP(domain, kind, qp.QPAttr(port_num=1))
    memory = mr.MR(domain, ROOM * (RECEIVES + 1), enums.IBV_ACCESS_LOCAL_WRITE)
    flow = Flow(pair, FlowAttr(flow_type=enums.IBV_FLOW_ATTR_ALL_DEFAULT))
    for number in range(RECEIVES):
        place = wr.SGE(memory.buf + ROOM * number, ROOM, memory.lkey)
        pair.post_recv(wr.RecvWR(number, num_sge=1, sg=[place]))
    wanted = ipaddress.IPv4Address(address).packed
    own = ipaddress.IPv4Address(int(ipaddress.IPv4Address(address)) + 1).packed
    asked = bytes.fromhex("0806 0001 0800 06 04 0001") + STATION + own + bytes(6) + wanted
    question = (b"\xff" * 6 + STATION + asked).ljust(60, b"\0")
    memory.write(question, len(question), ROOM * RECEIVES)
    end, again = time.monotonic() + limit_s, 0.0
    while (now := time.monotonic()) < end:
        if now >= again:
            again = now + EVERY_S
            sge = wr.SGE(memory.buf + ROOM * RECEIVES, len(question), memory.lkey)
            pair.post_send(wr.SendWR(1000, num_sge=1, sg=[sge]))
        for done in completions.poll(16)[1]:
            if done.wr_id >= RECEIVES:
                continue
            frame = memory.read(done.byte_len, ROOM * done.wr_id)
            if frame[:6] == STATION and frame[12:22] == bytes.fromhex("0806 0001 0800 06 04 0002") and (
                frame[28:32] == wanted
            ):
                print(frame[22:28].hex(":"), flush=True)
                flow.close()
                return
    print("nobody answers", flush=True)


main(sys.argv[1], float(sys.argv[2]))
