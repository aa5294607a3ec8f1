"""A port with several IP addresses: each is an entry of its GID table, packets leave from the one that a path
begins at, what comes to any of them is taken, and RDMA CM binds to each.
"""

import errno
import socket

import pytest
from cm_identifiers import TCP, UDP, code_of, connected, expect, init_attr, listening, routed

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, GlobalRoute
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, ConnParam
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.gid import GID
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

NAMES = ("many0", "many1")
QKEY = 0x11


def v4(address):
    return GID.from_bytes(bytes(10) + b"\xff\xff" + socket.inet_aton(address))


class Both:
    """Two devices: ``left`` has two IPv4 addresses, ``right`` two, too."""

    def __init__(self, address, mode):
        self.left, self.right = [address(), address()], [address(), address()]
        devices.add(
            ",".join(
                f"{name}=udp:{first}?addresses={second}"
                for name, (first, second) in zip(NAMES, (self.left, self.right), strict=True)
            ),
            mode,
        )
        self.kept = [registry.open_device(name) for name in NAMES]
        self.contexts = [Context(name=name) for name in NAMES]

    def close(self):
        for each in (*self.contexts, *self.kept):
            each.close()
        for name in NAMES:
            devices.remove(name)


@pytest.fixture(params=["embedded", "process"], scope="module")
def both(request, loopback_address):
    made = Both(loopback_address, request.param)
    yield made
    made.close()


class End:
    """A queue pair of ``kind`` with a buffer of 256 bytes, which takes up to eight messages."""

    def __init__(self, context, kind=e.IBV_QPT_RC):
        self.pd = PD(context)
        self.cq = CQ(context, 64)
        self.mr = MR(self.pd, 256, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        self.qp = QP(self.pd, QPInitAttr(kind, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8, 1, 1)))

    def receive(self):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, 256, self.mr.lkey)]))

    def send(self, data, ah=None, qpn=0):
        self.mr.write(data, len(data))
        wr = SendWR(num_sge=1, sg=[SGE(self.mr.buf, len(data), self.mr.lkey)])
        if ah is not None:
            wr.set_wr_ud(ah, qpn, QKEY)
        self.qp.post_send(wr)

    def completion(self):
        while True:
            count, found = self.cq.poll()
            if count:
                assert found[0].status == e.IBV_WC_SUCCESS, found[0]
                return found[0]

    def close(self):
        for each in (self.qp, self.cq, self.mr, self.pd):
            each.close()


def path(gid, index):
    return AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=gid, sgid_index=index, hop_limit=2))


def connect(one, other, gids, indexes):
    """Bring both to RTS: each begins at the index of its own table and leads to the other's GID."""
    for own, peer, gid, index in ((one, other, gids[1], indexes[0]), (other, one, gids[0], indexes[1])):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attr.path_mtu, attr.dest_qp_num, attr.ah_attr = e.IBV_MTU_1024, peer.qp.qp_num, path(gid, index)
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 3, 7, 1
        own.qp.to_rts(attr)


def test_each_address_is_an_entry_of_the_table(both):
    for context, own in zip(both.contexts, (both.left, both.right), strict=True):
        wanted = [v4(own[index % 2]).raw for index in range(4)]
        assert [context.query_gid(1, index).raw for index in range(4)] == wanted
        table = context.query_gid_table(16)
        assert [(entry.gid_index, entry.port_num) for entry in table] == [(n, 1) for n in range(4)]
        assert code_of(context.query_gid_ex, 1, 4) == errno.ENODATA
        assert code_of(context.query_gid, 1, 16) == errno.EINVAL


@pytest.mark.parametrize("indexes", [(0, 0), (1, 1), (0, 1), (1, 0), (3, 2)])
def test_a_connection_goes_from_one_address_to_another(both, indexes):
    gids = [context.query_gid(1, index) for context, index in zip(both.contexts, indexes, strict=True)]
    one, other = (End(context) for context in both.contexts)
    try:
        connect(one, other, gids, indexes)
        for sender, taker in ((one, other), (other, one)):
            taker.receive()
            sender.send(b"hello")
            assert sender.completion().opcode == e.IBV_WC_SEND
            assert taker.completion().byte_len == 5
            assert taker.mr.read(5, 0) == b"hello"
    finally:
        one.close()
        other.close()


def test_a_datagram_says_which_address_it_left_from_and_came_to(both):
    """The GRH's area has both, and an answer that is made of it goes back the same way."""
    one, other = (End(context, e.IBV_QPT_UD) for context in both.contexts)
    try:
        for end in (one, other):
            attr = QPAttr(port_num=1)
            attr.qkey = QKEY
            end.qp.to_rts(attr)
        for mine in (0, 1):
            for theirs in (0, 1):
                other.receive()
                handle = AH(one.pd, attr=path(v4(both.right[theirs]), mine))
                one.send(b"to one of both", handle, other.qp.qp_num)
                one.completion()
                taken = other.completion()
                header = other.mr.read(40, 0)
                assert header[32:36] == socket.inet_aton(both.left[mine])
                assert header[36:40] == socket.inet_aton(both.right[theirs])
                one.receive()
                back = AH(other.pd, wc=taken, grh=other.mr.buf, port_num=1)
                other.send(b"back", back, one.qp.qp_num)
                other.completion()
                one.completion()
                header = one.mr.read(40, 0)
                assert header[32:36] == socket.inet_aton(both.right[theirs])
                assert header[36:40] == socket.inet_aton(both.left[mine])
                handle.close()
                back.close()
    finally:
        one.close()
        other.close()


def test_a_path_begins_at_no_index_that_is_not_there(both):
    end = End(both.contexts[0], e.IBV_QPT_UD)
    try:
        for index in (4, 15, 16, 255):
            assert code_of(AH, end.pd, attr=path(v4(both.right[0]), index)) == errno.EINVAL
    finally:
        end.close()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("space", [TCP, UDP])
def test_rdma_cm_binds_to_each_address(both, closing, space, place):
    mine, theirs = both.left[1 - place], both.right[place]
    one, other, *_ = connected(mine, theirs, closing, space)
    if space == TCP:
        for sender, taker in ((one, other), (other, one)):
            kept = MR(taker.pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
            taker.post_recv(kept, 64)
            data = MR(sender.pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
            data.write(b"by this path", 12)
            sender.post_send(data, 0, 12)
            assert sender.get_send_comp().status == e.IBV_WC_SUCCESS
            assert taker.get_recv_comp().byte_len == 12
            kept.close()
            data.close()


def test_who_listens_at_one_address_is_not_found_at_the_other(both, closing):
    passive, active = closing(CMEventChannel()), closing(CMEventChannel())
    listening(passive, both.right[1], closing)
    asking = routed(active, both.left[0], both.right[0], closing)
    asking.create_qp(init_attr())
    asking.connect(ConnParam())
    found = routed(active, both.left[1], both.right[1], closing)
    found.create_qp(init_attr())
    found.connect(ConnParam())
    asked = expect(passive, ce.RDMA_CM_EVENT_CONNECT_REQUEST)  # of the second alone
    refused = expect(active, ce.RDMA_CM_EVENT_REJECTED)
    assert refused.status == 8  # IBTA vol. 1, table 121: nobody listens for the service
    asked.ack_cm_event()


def test_two_listeners_have_one_port_number_at_two_addresses(both, closing):
    channel = closing(CMEventChannel())
    for address in both.right:
        listening(channel, address, closing)
    third = closing(CMID(creator=channel, port_space=TCP))
    assert (
        code_of(third.bind_addr, AddrInfo(src=both.right[1], src_service="7471", port_space=TCP, flags=1))
        == errno.EADDRINUSE
    )


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_who_names_an_address_that_a_shared_adapter_is_without_is_refused(loopback_address, mode):
    """It would bind to nothing else, and be told nowhere; who names fewer may have the adapter."""
    first, second, third = (loopback_address() for _ in range(3))
    both = f"?addresses={second}"
    asked = {"begun": both, "same": both, "fewer": "", "more": f"{both}+{third}"}
    opened = []
    try:
        for name, options in asked.items():
            devices.add(f"{name}=udp:{first}{options}", mode)
        opened = [registry.open_device(name) for name in ("begun", "same", "fewer")]
        with pytest.raises(DriverError, match=f"is without {third} ") as refused:
            registry.open_device("more")
        assert refused.value.errno == errno.EADDRINUSE
        devices.add(f"apart=udp:{second}", mode)
        with pytest.raises(DriverError, match=second) as refused:
            registry.open_device("apart")
        assert refused.value.errno == errno.EADDRINUSE
        assert mode == "process" or "has it among other addresses" in refused.value.message
    finally:
        devices.remove("apart")
        for each in reversed(opened):
            each.close()
        for name in asked:
            devices.remove(name)
