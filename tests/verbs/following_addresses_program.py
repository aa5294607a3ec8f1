"""Two devices that have all addresses of their interfaces, and hear when these change.

``python following_addresses_program.py MODE SAME_HOST LEFT RIGHT`` says ``ready``, then does what each line
of its input says, and says by JSON what has come of it: ``event SIDE`` (waits for an asynchronous event:
its kind and the table behind it), ``table SIDE``, ``connect OWN PEER INDEX INDEX`` (a pair of queue pairs
between these addresses, at these entries), ``send`` (one message over it: status and message), ``write``
(RDMA WRITEs over it: whether they come to be carried out in shared memory), ``put`` (one of them: its
status), ``handle INDEX PEER`` (an address handle: errno, 0 for none), ``cm OWN PEER`` (a connection by RDMA
CM: likewise).
"""

import json
import sys
from contextlib import ExitStack, closing

from changing_addresses_program import status_of
from cm_identifiers import expect, init_attr, listening, routed
from two_versions_program import NAMES, End, in_memory, path

from softhca.driver import registry
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.cmid import CMID, CMEventChannel, ConnParam
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QPAttr
from softhca.verbs.wr import SGE, SendWR


def joined(contexts, own, peer, own_index, peer_index):
    """Queue pairs of both devices that are connected from entry to entry."""
    ends = [End(context) for context in contexts]
    for end, other, address, index in (
        (*ends, peer, int(own_index)), (*ends[::-1], own, int(peer_index))
    ):  # fmt: skip
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attr.path_mtu, attr.dest_qp_num, attr.ah_attr = e.IBV_MTU_1024, other.qp.qp_num, path(address, index)
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 1
        end.qp.to_rts(attr)
    return ends


def table_of(context):
    """The GIDs by index, up to the last one that is used.  It may change between two questions."""
    known, used = None, []
    while known != used:
        found = [context.query_gid(1, index).gid for index in range(16)]
        used = [index for index, gid in enumerate(found) if gid.strip("0:")]
        known = [entry.gid_index for entry in context.query_gid_table(16)]
    return found[: max(used, default=-1) + 1]


class Session:
    """What the lines of input ask for."""

    def __init__(self, contexts):
        self.contexts = dict(zip(NAMES, contexts, strict=True))
        self.made = []
        self.pair = ()
        self.channel = self.listener = None

    def table(self, side):
        return table_of(self.contexts[side])

    def event(self, side):
        event = self.contexts[side].get_async_event()
        found = [event.event_type, table_of(self.contexts[side])]
        event.ack()
        return found

    def connect(self, *where):
        self.pair = joined(self.contexts.values(), *where)
        self.made += self.pair
        return "connected"

    def send(self):
        return status_of(*self.pair)

    def write(self):
        return in_memory(*self.pair)

    def put(self):
        """One RDMA WRITE over the last pair; its status."""
        one, other = self.pair
        wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(one.mr.buf, 64, one.mr.lkey)])
        wr.set_wr_rdma(other.mr.rkey, other.mr.buf)
        one.qp.post_send(wr)
        while not (found := one.cq.poll()[1]):
            pass
        return int(found[0].status)

    def handle(self, index, peer):
        end = End(self.contexts[NAMES[0]])
        self.made.append(end)
        try:
            AH(end.pd, attr=path(peer, int(index))).close()
        except PyverbsRDMAError as error:
            return error.error_code
        return 0


    def cm(self, own, peer):
        """A connection by RDMA CM to a listener at any address, which is there since the first of these."""
        with ExitStack() as stack:
            if self.listener is None:
                self.channel = CMEventChannel()
                self.listener = listening(self.channel, "0.0.0.0", self.made_for_good)
            try:
                channel = stack.enter_context(closing(CMEventChannel()))
                active = routed(channel, own, peer, lambda made: stack.enter_context(closing(made)))
            except PyverbsRDMAError as error:
                return error.error_code
            active.create_qp(init_attr())
            active.connect(ConnParam())
            asked = expect(self.channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
            passive = stack.enter_context(closing(CMID(creator=asked, listen_id=self.listener)))
            passive.create_qp(init_attr())
            passive.accept(ConnParam())
            expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED)
            expect(self.channel, ce.RDMA_CM_EVENT_ESTABLISHED)
            return 0

    def made_for_good(self, made):
        """It is closed at the end."""
        self.made.append(made)
        return made


def main(mode, same_host, *addresses):
    given = zip(NAMES, addresses, strict=True)
    devices.add(
        ",".join(f"{name}=udp:{own}?addresses=all&same_host={same_host}" for name, own in given), mode
    )
    kept = [registry.open_device(name) for name in NAMES]
    contexts = [Context(name=name) for name in NAMES]
    session = Session(contexts)
    print("ready", flush=True)
    for line in sys.stdin:
        what, *words = line.split()
        print(json.dumps(getattr(session, what)(*words)), flush=True)
    for each in (*session.made, *contexts, *kept):
        each.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
