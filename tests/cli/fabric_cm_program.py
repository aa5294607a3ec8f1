"""Two hosts of a native fabric that connect by RDMA CM: rank 0 listens at all its addresses and echoes, rank
1 resolves rank 0's GID, connects and sends; between two messages the link fails that the first one took, and
then it connects again.  Each prints one line of JSON.
"""

import errno
import json
import os
import socket

from softhca.runtime.fabric_control import ask
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, AddrInfo, ConnParam
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QPCap, QPInitAttr

TRUNKS = ("s[3]", "s[4]")
rank, meeting = int(os.environ["SOFTHCA_RANK"]), (os.environ["SOFTHCA_PEERS"].split(",")[0], 7471)
fabric = os.environ["SOFTHCA_FABRIC"]
with Context(name="softhca0") as context:
    own = str(context.query_gid(1, 0))
    lid = context.query_port(1).lid
tcp = socket.socket() if rank else socket.create_server(meeting).accept()[0]
while rank and tcp.connect_ex(meeting):
    pass  # rank 0 does not listen yet
lines = tcp.makefile("rw")
CAP = QPCap(max_send_wr=4, max_recv_wr=4)
told = {"rank": rank, "gid": own, "lid": lid, "got": []}


def transmitted(end):
    return ask(fabric, {"do": "traffic", "link": end})["traffic"][end]["xmit_pkts"]


def identifier(info):
    return CMID(creator=info, qp_init_attr=QPInitAttr(e.IBV_QPT_RC, cap=CAP, sq_sig_all=1))


def receive(cmid, region):
    """The message that has come."""
    cmid.get_recv_comp()
    return region.read(5, 0).decode()


def exchange(cmid, text):
    """Send, and have it back."""
    region, sent = cmid.reg_msgs(5), cmid.reg_msgs(5)
    cmid.post_recv(region)
    sent.write(text.encode(), 5)
    cmid.post_send(sent)
    cmid.get_send_comp()
    told["got"].append(receive(cmid, region))


def serve():
    listener = identifier(AddrInfo(src="::", src_service="7471", flags=ce.RAI_PASSIVE))
    listener.listen()
    print(own, file=lines, flush=True)
    for count in (2, 1):
        child = listener.get_request()
        region = child.reg_msgs(5)
        child.post_recv(region)
        child.accept(ConnParam())
        for number in range(count):
            text = receive(child, region)
            told["got"].append(text)
            answer = child.reg_msgs(5)
            answer.write(text.upper().encode(), 5)
            if number + 1 < count:
                child.post_recv(region)
            child.post_send(answer)
            child.get_send_comp()
        lines.readline()
        child.close()
    listener.close()


def connect(peer):
    active = identifier(AddrInfo(dst=peer, dst_service="7471"))
    active.connect(ConnParam())
    return active


def ask_for():
    peer = lines.readline().strip()
    for wrong in ("fe80::dead:beef", "fd00::1"):
        try:
            connect(wrong)
        except PyverbsRDMAError as error:
            told.setdefault("refused", []).append(errno.errorcode[error.error_code])
    before = {end: transmitted(end) for end in TRUNKS}
    active = connect(peer)
    exchange(active, "first")
    used = max(TRUNKS, key=lambda end: transmitted(end) - before[end])
    told["used"], other = used, TRUNKS[1 - TRUNKS.index(used)]
    ask(fabric, {"do": "fail", "link": used})
    before = transmitted(other)
    exchange(active, "other")
    told["by_other"] = transmitted(other) - before
    print("done", file=lines, flush=True)
    active.close()
    again = connect(peer)
    exchange(again, "third")
    print("done", file=lines, flush=True)
    again.close()


try:
    (ask_for if rank else serve)()
finally:
    os.write(1, f"{json.dumps(told)}\n".encode())
