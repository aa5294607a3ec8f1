"""What commands for the communication manager say to it: every field, its bounds, and that its time comes."""

import errno
from types import SimpleNamespace

import pytest

from softhca.adapter import connection_commands as commands
from softhca.management.cm import messages as m
from softhca.management.cm.elements import EE_CONTEXT
from softhca.queues.control_fields import QPT_RD, QPT_XRC_SEND
from softhca.testing.ends import RC, UC

OWN, PEER, OTHER, THERE = (bytes([0xFE, 0x80, *bytes(13), number]) for number in (1, 2, 3, 4))
NOW = 77
END = {
    "qp_num": 0x123456, "starting_psn": 0x654321, "responder_resources": 3, "initiator_depth": 4,
    "rnr_retry": 5, "srq": 1, "flow_control": 0,
}  # fmt: skip
PATH = {
    "dgid": PEER, "dlid": 9, "sl": 6, "traffic_class": 7, "hop_limit": 8, "flow_label": 10,
    "pkey_index": 1, "path_mtu": 3, "ack_timeout": 11, "retry_cnt": 2, "cm_response_timeout": 12,
    "max_cm_retries": 13, "sgid_index": 0,
}  # fmt: skip
WAY = {
    "own_gid": OTHER, "dgid": THERE, "flow_label": 14, "own_lid": 0, "dlid": 15, "sl": 1, "traffic_class": 2,
    "hop_limit": 3, "ack_timeout": 16, "packet_rate": 17,
}  # fmt: skip
NO_WAY = {name: bytes(16) if name.endswith("gid") else 0 for name in WAY}


def prefixed(way):
    return {f"alternate_{name}": value for name, value in way.items()}


class Recorder:
    """Keeps the calls of its methods, which give 5."""

    def __init__(self, calls, name):
        self._calls, self._name = calls, name

    def __getattr__(self, method):
        return lambda *arguments: self._calls.append((f"{self._name}{method}", arguments)) or 5


class Channel:
    """A channel that offers no instance numbers and keeps what it is told in ``calls``."""

    def __init__(self, native, room=True):
        self.calls = []
        self.room = room
        self.manager = Recorder(self.calls, "")
        port = SimpleNamespace(native=native, lid=20 if native else 0, gids=(OWN,), pkeys=(0xFFFF, 0x8001),
                               gid_table=(OWN, OTHER))  # fmt: skip
        port.pkey = port.pkeys.__getitem__
        self.ports = [port, SimpleNamespace(native=native, lid=21 if native else 0, gids=(OTHER,))]
        management = SimpleNamespace(port=port, number=1, own_gid=lambda peer: OWN)
        self.connections = SimpleNamespace(
            manager=self.manager, port=port, management=management, arm=lambda: self.calls.append(("arm", ()))
        )
        self.instances = SimpleNamespace(
            request=lambda request, peer: request, reply=lambda number, reply: reply,
            sent=lambda *_: None, forget=lambda number: self.calls.append(("forget", (number,))),
        )  # fmt: skip
        self.named = []

    def require_room(self):
        if not self.room:
            raise OSError(errno.ENOMEM, "no room")

    def add(self, number):
        self.calls.append(("add", (number,)))

    def remove(self, number):
        self.calls.append(("remove", (number,)))

    def may_name(self, end):
        self.named.append(end)
        return end & 0xFFFFFF != 0x666666

    def does(self, command, **fields):
        """Carry a command out; the names of what was called."""
        adapter = SimpleNamespace(
            resources=SimpleNamespace(find=lambda *_: SimpleNamespace(element=self)),
            ports=self.ports,
            device_attributes={"local_ca_ack_delay": 15},
        )
        self.calls.clear()
        self.result = command(adapter, SimpleNamespace(number=1), {"cm": 1, "id": 5, **fields}, NOW)
        return [name for name, _ in self.calls]

    def said(self, method):
        """The arguments of a call."""
        return next(arguments for name, arguments in self.calls if name == method)


@pytest.fixture(params=[False, True], ids=["roce", "native"])
def channel(request):
    return Channel(request.param)


def connect(channel, **changes):
    fields = {"service_id": 99, "qp_type": RC, **END, **PATH, **prefixed(NO_WAY), "private_data": b"hello"}
    return channel.does(commands.cm_connect, **{**fields, **changes})


def primary(request):
    names = ("flow_label", "traffic_class", "hop_limit", "sl", "subnet_local", "ack_timeout", "local_lid",
             "remote_lid", "local_gid", "remote_gid")  # fmt: skip
    return tuple(getattr(request, f"primary_{name}") for name in names)


def test_a_request_says_what_its_command_has_said(channel):
    assert connect(channel) == ["connect", "add", "arm"]
    assert channel.result == {"id": 5}
    owner, peer, request, now = channel.said("connect")
    assert (owner, now) == (channel, NOW)
    native = channel.connections.port.native
    assert (peer.qpn, peer.pkey, peer.lid, peer.sl, peer.gid, peer.own_gid, peer.traffic_class) == (
        1, 0x8001, 9, 6, PEER, OWN, 7
    )  # fmt: skip
    lids = (20, 9) if native else (0xFFFF, 0xFFFF)
    assert primary(request) == (10, 7, 8, 6, int(native), 11, *lids, OWN, PEER)
    assert (request.service_id, request.partition_key, request.path_mtu) == (99, 0x8001, 3)
    assert (request.remote_cm_response_timeout, request.local_cm_response_timeout) == (12, 12)
    assert (request.max_cm_retries, request.retry_count, request.rnr_retry_count) == (13, 2, 5)
    assert (request.local_qpn, request.local_eecn, request.starting_psn) == (0x123456, 0, 0x654321)
    assert (request.responder_resources, request.initiator_depth) == (3, 4)
    assert (request.srq, request.end_to_end_flow_control) == (1, 0)
    assert (request.transport_service_type, request.extended_transport_type) == (m.SERVICE_RC, 0)
    assert request.private_data == b"hello".ljust(92, b"\0")
    assert not any(request.alternate_remote_gid)


@pytest.mark.parametrize(
    ("kind", "service", "extended"),
    [(UC, m.SERVICE_UC, 0), (QPT_RD, m.SERVICE_RD, 0),
     (QPT_XRC_SEND, m.SERVICE_EXTENDED, m.EXTENDED_XRC)],
)  # fmt: skip
def test_a_request_is_for_a_service_by_the_type_of_the_queue_pair(channel, kind, service, extended):
    connect(channel, qp_type=kind)
    request = channel.said("connect")[2]
    assert (request.transport_service_type, request.extended_transport_type) == (service, extended)
    datagrams = kind == QPT_RD
    assert (request.local_qpn, request.local_eecn) == ((0, 0x123456) if datagrams else (0x123456, 0))
    assert channel.named == [0x123456 | EE_CONTEXT if datagrams else 0x123456]


def test_a_request_begins_at_the_entry_of_the_own_gid_table_that_is_named(channel):
    connect(channel, sgid_index=1)
    assert channel.said("connect")[1].own_gid == OTHER
    assert channel.said("connect")[2].primary_local_gid == OTHER
    with pytest.raises(OSError, match="sgid_index") as refused:
        connect(channel, sgid_index=2)
    assert refused.value.errno == errno.EINVAL
    channel.connections.port.gid_table = (OWN, bytes(16))
    with pytest.raises(OSError, match="has gone") as refused:
        connect(channel, sgid_index=1)
    assert refused.value.errno == errno.EINVAL


def alternate(message):
    names = ("flow_label", "traffic_class", "hop_limit", "sl", "subnet_local", "ack_timeout", "packet_rate",
             "local_lid", "remote_lid", "local_gid", "remote_gid")  # fmt: skip
    return tuple(getattr(message, f"alternate_{name}") for name in names)


def test_requests_and_proposals_say_an_alternate_path_from_the_port_that_it_begins_at(channel):
    native = channel.connections.port.native
    lids = (21, 15) if native else (0xFFFF, 0xFFFF)
    expected = (14, 2, 3, 1, int(native), 16, 17, *lids, OTHER, THERE)
    connect(channel, **prefixed(WAY))
    assert alternate(channel.said("connect")[2]) == expected
    assert channel.does(commands.cm_load_path, **WAY, private_data=b"") == ["load_path", "arm"]
    assert alternate(channel.said("load_path")[2]) == expected
    strange = {**WAY, "own_gid": THERE}
    with pytest.raises(OSError, match="own_gid"):
        channel.does(commands.cm_load_path, **strange, private_data=b"")
    with pytest.raises(OSError, match="leads nowhere"):
        channel.does(commands.cm_load_path, **NO_WAY, private_data=b"")
    assert channel.calls == []


def test_an_alternate_path_may_lead_to_a_lid_alone():
    channel = Channel(True)
    way = {**NO_WAY, "own_lid": 21, "dlid": 15}
    connect(channel, **prefixed(way))
    request = channel.said("connect")[2]
    assert (request.alternate_local_lid, request.alternate_remote_lid) == (21, 15)
    channel.does(commands.cm_load_path, **way, private_data=b"")
    assert channel.said("load_path")[2].alternate_remote_lid == 15


def test_a_reply_says_what_its_command_has_said(channel):
    fields = {**END, "qp_type": RC, "failover": m.FAILOVER_REJECTED, "private_data": b"yes"}
    assert channel.does(commands.cm_reply, **fields) == ["reply", "forget", "arm"]
    owner, number, reply, now = channel.said("reply")
    assert (owner, number, now) == (channel, 5, NOW)
    assert (reply.failover_accepted, reply.target_ack_delay) == (m.FAILOVER_REJECTED, 15)
    assert (reply.local_qpn, reply.starting_psn, reply.rnr_retry_count) == (0x123456, 0x654321, 5)
    assert (reply.responder_resources, reply.initiator_depth) == (3, 4)
    assert (reply.srq, reply.end_to_end_flow_control) == (1, 0)
    with pytest.raises(OSError, match="failover"):
        channel.does(commands.cm_reply, **{**fields, "failover": m.FAILOVER_REJECTED + 1})
    with pytest.raises(OSError, match="another program"):
        channel.does(commands.cm_reply, **{**fields, "qp_num": 0x666666})
    with pytest.raises(OSError, match="EE context"):
        channel.does(commands.cm_reply, **{**fields, "qp_type": QPT_RD, "qp_num": 0})


@pytest.mark.parametrize(("name", "bits"), [
    ("qp_num", 24), ("starting_psn", 24), ("retry_cnt", 3), ("rnr_retry", 3), ("srq", 1),
    ("flow_control", 1), ("flow_label", 20), ("sl", 4), ("path_mtu", 4), ("ack_timeout", 5),
    ("cm_response_timeout", 5), ("max_cm_retries", 4), ("alternate_flow_label", 20), ("alternate_sl", 4),
    ("alternate_ack_timeout", 5), ("alternate_packet_rate", 6),
])  # fmt: skip
def test_a_value_that_its_message_has_no_room_for_is_refused(name, bits):
    channel = Channel(False)
    assert connect(channel, **{name: (1 << bits) - 1})
    with pytest.raises(OSError, match=name) as refused:
        connect(channel, **{name: 1 << bits})
    assert refused.value.errno == errno.EINVAL
    assert channel.calls == []


def test_whatever_needs_a_place_is_refused_where_there_is_none():
    channel = Channel(False, room=False)
    path = {**PATH, "service_id": 99, "private_data": b""}
    for call in (
        lambda: connect(channel),
        lambda: channel.does(commands.cm_listen, service_id=99, backlog=1),
        lambda: channel.does(commands.cm_resolve, **path),
    ):
        with pytest.raises(OSError, match="no room"):
            call()
        assert channel.calls == []
    channel.room = True
    assert channel.does(commands.cm_listen, service_id=99, backlog=6) == ["listen", "add"]
    assert channel.said("listen") == (channel, 99, 6)


def test_who_asks_for_a_queue_pair_of_datagrams_says_for_how_long_and_how_often(channel):
    fields = {**PATH, "service_id": 99, "private_data": b"who"}
    assert channel.does(commands.cm_resolve, **fields) == ["resolve", "add", "arm"]
    owner, peer, request, timeout, retries, now = channel.said("resolve")
    assert (owner, peer.gid, peer.pkey, timeout, retries, now) == (channel, PEER, 0x8001, 12, 13, NOW)
    assert (request.partition_key, request.service_id) == (0x8001, 99)
    answer = {"status": 2, "qp_num": 3, "qkey": 4, "private_data": b"me"}
    assert channel.does(commands.cm_answer, **answer) == ["answer", "remove"]
    said = channel.said("answer")[2]
    assert (said.status, said.qpn, said.qkey) == (2, 3, 4)


def test_the_end_of_a_connection_is_timed_and_gives_its_place_back(channel):
    assert channel.does(commands.cm_disconnect, private_data=b"bye") == ["disconnect", "arm"]
    assert channel.said("disconnect") == (channel, 5, b"bye", NOW)
    assert channel.does(commands.cm_destroy) == ["destroy", "remove", "arm"]
    assert channel.said("destroy") == (channel, 5, NOW)
    rejected = channel.does(commands.cm_reject, reason=28, ari=b"a", private_data=b"no")
    assert rejected == ["reject", "forget"]
    assert channel.said("reject") == (channel, 5, 28, b"a", b"no", NOW)


@pytest.mark.parametrize("length", [0, 1, 72])
def test_an_answer_to_a_proposed_path_says_how_much_it_has_to_tell(length):
    channel = Channel(False)
    fields = {"status": 4, "information": b"x" * length, "private_data": b""}
    assert channel.does(commands.cm_answer_path, **fields) == ["answer_path"]
    apr = channel.said("answer_path")[2]
    assert (apr.ap_status, apr.additional_information_length) == (4, length)
    assert apr.additional_information == b"x" * length + bytes(72 - length)
    with pytest.raises(OSError, match="72 bytes"):
        channel.does(commands.cm_answer_path, **{**fields, "information": bytes(73)})


def test_a_channel_that_goes_ends_all_that_was_begun_on_it_and_is_told_nothing_more(channel):
    order = []
    channel.connections.channels = [channel]
    channel.end = lambda: order.append("end")
    channel.connections.manager = SimpleNamespace(destroy_all=lambda *said: order.append(said))
    channel.connections.arm = lambda: order.append("arm")
    adapter = SimpleNamespace(now=NOW)
    commands.release_channel(adapter, SimpleNamespace(number=1), SimpleNamespace(element=channel))
    assert order == [(channel, NOW), "arm", "end"]
    assert channel.connections.channels == []
