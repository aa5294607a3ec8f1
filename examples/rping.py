"""Ping over RDMA READ and WRITE, as rdma-core's rping does it: the client offers a buffer, the server reads
it and writes it back into another one, and the client compares.

``rping.py -s [-a ADDRESS]`` serves one client, ``rping.py -c -a ADDRESS [-C COUNT]`` is one.  It is written
for pyverbs: start it with ``softhca run -- python rping.py …``, or with plain Python where there is a device.
Its messages are rping's, so that it also speaks with ``rping``.
"""

import argparse
import struct
import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo, ConnParam
from pyverbs.qp import QPCap, QPInitAttr

INFO = struct.Struct("!QII")  # address, R_Key and length of a buffer
SIZE = 64


def queue_pair() -> QPInitAttr:
    """What both sides ask for."""
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=16, max_recv_wr=2))


class Messages:
    """A message each way at a time: ``say`` and ``hear`` buffers of a connected identifier."""

    def __init__(self, cmid: CMID) -> None:
        self.cmid = cmid
        self.say, self.hear = cmid.reg_msgs(INFO.size), cmid.reg_msgs(INFO.size)
        cmid.post_recv(self.hear)

    def send(self, address: int = 0, rkey: int = 0, length: int = 0) -> None:
        """Tell the peer of a buffer."""
        self.say.write(INFO.pack(address, rkey, length), INFO.size)
        self.cmid.post_send(self.say)
        check(self.cmid.get_send_comp())

    def receive(self) -> tuple:
        """What the peer tells: address, R_Key, length."""
        check(self.cmid.get_recv_comp())
        said = INFO.unpack(self.hear.read(INFO.size, 0))
        self.cmid.post_recv(self.hear)
        return said


def check(completion) -> None:
    """A completion must be a success."""
    if completion.status != e.IBV_WC_SUCCESS:
        sys.exit(f"completion status {completion.status}")


def serve(address: str, port: str, count: int) -> None:
    """Serve one client, for ``count`` pings."""
    info = AddrInfo(src=address, src_service=port, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    listener = CMID(creator=info, qp_init_attr=queue_pair())
    listener.listen()
    print(f"listening at {address} port {port}", flush=True)
    cmid = listener.get_request()
    messages, data = Messages(cmid), cmid.reg_msgs(SIZE)
    cmid.accept()
    for _ in range(count):
        source, rkey, length = messages.receive()
        cmid.post_read(data, min(length, SIZE), source, rkey, flags=e.IBV_SEND_SIGNALED)
        check(cmid.get_send_comp())
        print("server ping data:", data.read(min(length, SIZE), 0).rstrip(b"\0").decode(), flush=True)
        messages.send()
        sink, rkey, length = messages.receive()
        cmid.post_write(data, min(length, SIZE), sink, rkey, flags=e.IBV_SEND_SIGNALED)
        check(cmid.get_send_comp())
        messages.send()
    cmid.disconnect()
    cmid.close()
    listener.close()


def ping(address: str, port: str, count: int) -> None:
    """Ping a server ``count`` times."""
    info = AddrInfo(dst=address, dst_service=port, port_space=ce.RDMA_PS_TCP)
    cmid = CMID(creator=info, qp_init_attr=queue_pair())
    messages = Messages(cmid)
    source, sink = cmid.reg_read(SIZE), cmid.reg_write(SIZE)
    cmid.connect(ConnParam(resources=1, depth=1, retry=7, rnr_retry=7))
    for number in range(count):
        text = f"rdma-ping-{number}: ABCDEFGHIJKLMNOP".encode().ljust(SIZE, b"\0")
        source.write(text, SIZE)
        messages.send(source.buf, source.rkey, SIZE)
        messages.receive()
        messages.send(sink.buf, sink.rkey, SIZE)
        messages.receive()
        if sink.read(SIZE, 0) != text:
            sys.exit("the data have changed on the way")
        print("ping data:", text.rstrip(b"\0").decode(), flush=True)
    cmid.disconnect()
    cmid.close()


def main() -> None:
    """Be the side that the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("-s", action="store_true", help="serve")
    side.add_argument("-c", action="store_true", help="ping")
    parser.add_argument("-a", default="127.0.0.1", help="the server's address")
    parser.add_argument("-p", default="7174", help="its port")
    parser.add_argument("-C", type=int, default=3, help="how many pings")
    options = parser.parse_args()
    (serve if options.s else ping)(options.a, options.p, options.C)


if __name__ == "__main__":
    main()
