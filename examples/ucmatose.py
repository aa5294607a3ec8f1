"""Many connections by events, as rdma-core's ucmatose does it: the client connects so many times, both sides
send messages on every connection, and the client ends them.

``ucmatose.py -b ADDRESS`` serves, ``ucmatose.py -s ADDRESS`` is the client; ``-c`` connections, ``-C``
messages.  It is written for pyverbs: start it with ``softhca run -- python ucmatose.py …``, or with plain
Python where there is a device.
"""

import argparse
import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.qp import QPCap, QPInitAttr

SIZE = 100


class Node:
    """One connection: its identifier, its buffers and ``count`` messages to receive."""

    def __init__(self, cmid: CMID, count: int) -> None:
        self.cmid, self.count = cmid, count
        cmid.create_qp(QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=count, max_recv_wr=count)))
        self.send, self.receive = cmid.reg_msgs(SIZE), cmid.reg_msgs(SIZE * count)
        for _ in range(count):
            cmid.post_recv(self.receive, SIZE)

    def send_all(self) -> None:
        """Send what the peer waits for."""
        for _ in range(self.count):
            self.cmid.post_send(self.send)
        for _ in range(self.count):
            check(self.cmid.get_send_comp())

    def receive_all(self) -> None:
        """Wait for what the peer sends."""
        for _ in range(self.count):
            check(self.cmid.get_recv_comp())


def check(completion) -> None:
    """A completion must be a success."""
    if completion.status != e.IBV_WC_SUCCESS:
        sys.exit(f"completion status {completion.status}")


def expect(channel: CMEventChannel, kind: int) -> CMEvent:
    """The next event, which must be of this kind; the end of a time-wait may come in between."""
    event = CMEvent(channel)
    while event.event_type == ce.RDMA_CM_EVENT_TIMEWAIT_EXIT:
        event = CMEvent(channel)
    if event.event_type != kind:
        sys.exit(f"unexpected event {event.event_str()}")
    return event


def serve(address: str, port: str, connections: int, count: int) -> None:
    """Take so many connections; send first, then receive."""
    channel = CMEventChannel()
    listener = CMID(creator=channel, port_space=ce.RDMA_PS_TCP)
    listener.bind_addr(AddrInfo(src=address, src_service=port, flags=ce.RAI_PASSIVE))
    listener.listen()
    print(f"listening at {address} port {port}", flush=True)
    nodes = []
    established = 0
    while established < connections:
        event = CMEvent(channel)
        if event.event_type == ce.RDMA_CM_EVENT_CONNECT_REQUEST:
            nodes.append(Node(CMID(creator=event, listen_id=listener), count))
            nodes[-1].cmid.accept(ConnParam())
        elif event.event_type == ce.RDMA_CM_EVENT_ESTABLISHED:
            established += 1
        else:
            sys.exit(f"unexpected event {event.event_str()}")
        event.ack_cm_event()
    for node in nodes:
        node.send_all()
    for node in nodes:
        node.receive_all()
    for _ in nodes:
        expect(channel, ce.RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()
    for node in nodes:
        node.cmid.disconnect()
    print(f"{connections} connections, {count} messages each way", flush=True)
    close([node.cmid for node in nodes] + [listener])


def connect(address: str, port: str, connections: int, count: int) -> None:
    """Make so many connections; receive first, then send."""
    channel = CMEventChannel()
    nodes = []
    for _ in range(connections):
        cmid = CMID(creator=channel, port_space=ce.RDMA_PS_TCP)
        cmid.resolve_addr(AddrInfo(dst=address, dst_service=port))
        expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
        cmid.resolve_route()
        expect(channel, ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
        nodes.append(Node(cmid, count))
    for node in nodes:  # when all have routes: a connection may be established while the next one resolves
        node.cmid.connect(ConnParam())
    for _ in nodes:
        expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
    for node in nodes:
        node.receive_all()
    for node in nodes:
        node.send_all()
    for node in nodes:
        node.cmid.disconnect()
    for _ in nodes:
        expect(channel, ce.RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()
    print(f"{connections} connections, {count} messages each way", flush=True)
    close([node.cmid for node in nodes])


def close(cmids: list) -> None:
    """Close identifiers."""
    for cmid in cmids:
        cmid.close()


def main() -> None:
    """Be the side that the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("-b", metavar="ADDRESS", help="serve at this address")
    side.add_argument("-s", metavar="ADDRESS", help="connect to the server at this address")
    parser.add_argument("-p", default="7471", help="the server's port")
    parser.add_argument("-c", type=int, default=2, help="how many connections")
    parser.add_argument("-C", type=int, default=10, help="how many messages each way")
    options = parser.parse_args()
    if options.b:
        serve(options.b, options.p, options.c, options.C)
    else:
        connect(options.s, options.p, options.c, options.C)


if __name__ == "__main__":
    main()
