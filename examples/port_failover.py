"""A connection between adapters of two ports goes on when a cable is pulled, and when the other one is.

Two adapters in virtual time (`softhca.testing`), so that there is a cable to pull; all else is what a program
does on real hardware with automatic path migration.
"""
from softhca.testing import Network
from softhca.verbs import addr, cq, enums, mr, pd, qp, wr

ALTERNATE = enums.IBV_QP_ALT_PATH | enums.IBV_QP_PATH_MIG_STATE
STATES = {0: "migrated", 1: "rearm", 2: "armed"}


class Side:
    """One end: a queue pair, 64 bytes to send, and 64 to receive into."""

    def __init__(self, node):
        self.node, self.context = node, node.context()
        self.domain, self.completions = pd.PD(self.context), cq.CQ(self.context, 16)
        self.memory = mr.MR(self.domain, 128, enums.IBV_ACCESS_LOCAL_WRITE)
        kind = qp.QPInitAttr(
            enums.IBV_QPT_RC, scq=self.completions, rcq=self.completions, cap=qp.QPCap(), sq_sig_all=1
        )
        self.pair = qp.QP(self.domain, kind)

    def way(self, peer, port):
        """The address of a peer's port, from the own port with the same number."""
        gid = addr.GID(str(peer.context.query_gid(port, 0)))
        return addr.AHAttr(is_global=1, port_num=port, gr=addr.GlobalRoute(gid))

    def connect(self, peer):
        path = qp.QPAttr(port_num=1)
        path.dest_qp_num, path.ah_attr = peer.pair.qp_num, self.way(peer, 1)
        path.timeout, path.retry_cnt, path.rnr_retry, path.max_rd_atomic = 10, 1, 7, 1
        self.pair.to_rts(path)

    def arm(self, peer, port):
        """If the present path fails, go by that port."""
        path = qp.QPAttr()
        path.alt_ah_attr, path.alt_port_num, path.alt_timeout = self.way(peer, port), port, 10
        path.path_mig_state = enums.IBV_MIG_REARM
        self.pair.modify(path, ALTERNATE)

    def state(self):
        found, _ = self.pair.query(enums.IBV_QP_PATH_MIG_STATE | enums.IBV_QP_PORT)
        return f"port {found.port_num}, {STATES[found.path_mig_state]}"

    def completed(self):
        """The status of the next completion."""
        while True:
            count, found = self.completions.poll()
            if count:
                return cq.cqe_status_to_str(found[0].status)


with Network(polls_pass_time=True) as network:
    pulled = set()
    network.tamper = lambda sent: None if sent.route.port_number in pulled else sent.data
    left, right = (Side(network.add(ports=2)) for _ in range(2))
    for one, other in ((left, right), (right, left)):
        one.connect(other)
    for one, other in ((left, right), (right, left)):
        one.arm(other, 2)
    network.run()

    def say(text):
        element = wr.SGE(right.memory.buf + 64, 64, right.memory.lkey)
        right.pair.post_recv(wr.RecvWR(num_sge=1, sg=[element]))
        left.memory.write(text, len(text))
        element = wr.SGE(left.memory.buf, len(text), left.memory.lkey)
        left.pair.post_send(wr.SendWR(num_sge=1, sg=[element]))
        status = left.completed()
        right.completed()
        heard = right.memory.read(len(text), 64).decode()
        print(f"{status}: {heard!r}; {left.state()}, {right.state()}")

    say("by the first port")
    for port in (1, 2):
        pulled.add(port)
        print(f"the cable of port {port} is pulled")
        say("nothing is lost")
        events = [side.context.get_async_event().event_type for side in (left, right)]
        print("events:", *(event == enums.IBV_EVENT_PATH_MIG and "PATH_MIG" for event in events))
        pulled.discard(port)
        for one, other in ((left, right), (right, left)):
            one.arm(other, port)
        network.run()
        say("and again")
