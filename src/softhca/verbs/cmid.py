"""Connections by the RDMA connection manager: every name of it, refused with ``EOPNOTSUPP``.

The attributes can be made; what needs a connection manager cannot.
"""

from typing import Any

from softhca.verbs.absent import AbsentObject, absent_method, absent_property
from softhca.verbs.base import PyverbsObject


class ConnParam(PyverbsObject):
    """What a connection is asked for or accepted with; `private_data` are at most 196 bytes."""

    def __init__(
        self,
        resources: int = 1,
        depth: int = 1,
        flow_control: int = 0,
        retry: int = 5,
        rnr_retry: int = 5,
        srq: int = 0,
        qp_num: int = 0,
        data_len: int = 0,
    ) -> None:
        self.responder_resources = resources
        self.initiator_depth = depth
        self.flow_control = flow_control
        self.retry_count = retry
        self.rnr_retry_count = rnr_retry
        self.srq = srq
        self.qpn = qp_num
        self.private_data = bytes(data_len)

    def set_private_data(self, data: bytes) -> None:
        """Send these bytes along."""
        self.private_data = bytes(data)


class JoinMCAttrEx(PyverbsObject):
    """What a multicast group is joined with."""

    def __init__(self, addr: Any = None, comp_mask: int = 0, join_flags: int = 0) -> None:
        self.addr = addr
        self.comp_mask = int(comp_mask)
        self.join_flags = int(join_flags)


class AddrInfo(AbsentObject):
    """Addresses of a connection."""

    get_addrinfo = absent_method


class CMEventChannel(AbsentObject):
    """Where events of connections come in."""


class CMEvent(AbsentObject):
    """An event of a connection."""

    ack_cm_event = event_str = absent_method
    event_type = private_data = absent_property


class UDParam(AbsentObject):
    """How a peer's datagram queue pair is addressed."""

    qp_num = qkey = ah_attr = absent_property


class CMID(AbsentObject):
    """One end of a connection."""

    get_request = bind_addr = resolve_addr = resolve_addrinfo = query_addrinfo = resolve_route = absent_method
    join_multicast = leave_multicast = listen = connect = disconnect = accept = reject = absent_method
    establish = set_local_ece = get_remote_ece = create_qp = query_qp = init_qp_attr = absent_method
    reg_msgs = reg_read = reg_write = post_recv = post_send = post_read = post_write = absent_method
    post_ud_send = get_recv_comp = get_send_comp = set_option = absent_method
    dev_name = port_num = event_channel = context = pd = qpn = absent_property
