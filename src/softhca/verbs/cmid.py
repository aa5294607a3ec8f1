"""Connections by IP addresses: RDMA CM's identifiers (`CMID`), in pyverbs' shape.

`AddrInfo`, `ConnParam` and `JoinMCAttrEx` say what is wanted, `CMEventChannel`, `CMEvent` and `UDParam` what
has happened.  An identifier that is made of an `AddrInfo` works synchronously: its calls return when what
they ask for has come about.  One of a `CMEventChannel` works asynchronously, by events.
"""

import contextlib
import errno
from typing import Any

from softhca.driver.rdmacm import events, queue_pairs, states
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.events import ConnectionParameters, EventChannel, IdentifierEvent
from softhca.driver.rdmacm.identifier import OPTION_ID, Identifier
from softhca.machine import deferred_signals
from softhca.machine.weak_members import WeakMembers
from softhca.queues.qp_attributes import MASK
from softhca.verbs import cm_contexts
from softhca.verbs.absent import refuse
from softhca.verbs.base import creating, require, translated
from softhca.verbs.cm_events import CMEvent, CMEventChannel, UDParam
from softhca.verbs.cm_messages import Messages, WaitedQueue
from softhca.verbs.cm_parameters import AddrInfo, ConnParam, JoinMCAttrEx
from softhca.verbs.device import Context
from softhca.verbs.librdmacm_enums import (
    RAI_PASSIVE,
    rdma_cm_join_mc_attr_mask,
    rdma_cm_mc_join_flags,
    rdma_port_space,
)
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import ECE, QP, QPAttr, QPInitAttr
from softhca.verbs.queue_enums import ibv_qp_attr_mask

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "JoinMCAttrEx", "UDParam"]

_TCP = int(rdma_port_space.RDMA_PS_TCP)
_SEND_ONLY = int(rdma_cm_mc_join_flags.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER)
_ADDRESS = int(rdma_cm_join_mc_attr_mask.RDMA_CM_JOIN_MC_ATTR_ADDRESS)
_FLAGS = int(rdma_cm_join_mc_attr_mask.RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS)


class CMID(Messages):
    """One end of a connection, a listener, or a user of groups.

    ``creator`` is an `AddrInfo` (synchronous; with ``qp_init_attr`` it gets a queue pair at once, and so do
    the identifiers that a listener makes), a `CMEventChannel` (asynchronous), the `CMEvent` of a request for
    ``listen_id``, or None: an identifier that nothing can be done with.
    """

    __slots__ = (
        "_addresses",
        "_ctx",
        "_event_channel",
        "_id",
        "_mrs",
        "_pd",
        "_qp",
        "_qp_init_attr",
        "_recv_queue",
        "_send_queue",
        "_sync",
    )

    def __init__(
        self,
        creator: "AddrInfo | CMEventChannel | CMEvent | None" = None,
        qp_init_attr: QPInitAttr | None = None,
        pd: PD | None = None,
        port_space: int = _TCP,
        listen_id: "CMID | None" = None,
    ) -> None:
        for value, kind, name in ((qp_init_attr, QPInitAttr, "qp_init_attr"), (pd, PD, "pd")):
            if value is not None:
                require(value, kind, name)
        self._id: Identifier | None = None
        self._sync: EventChannel | None = None
        self._event_channel: CMEventChannel | None = None
        self._ctx: Context | None = None
        self._pd = pd
        self._qp: QP | None = None
        self._qp_init_attr = qp_init_attr
        self._mrs = WeakMembers()
        self._send_queue = self._recv_queue = None
        self._addresses: AddrInfo | None = None
        if creator is None:
            return
        if isinstance(creator, AddrInfo):
            self._create_synchronous(creator)
        elif isinstance(creator, CMEventChannel):
            self._event_channel = creator
            with creating("Failed to create CM ID"):
                creator.channel.check()
                self._id = Identifier(creator.channel, int(port_space))
                self._opened()
        elif isinstance(creator, CMEvent):
            if listen_id is None:
                raise PyverbsUserError("listen ID not provided")
            require(listen_id, CMID, "listen_id")
            self._event_channel = listen_id._event_channel
            self._take(creator.event.identifier, listen_id._pd)
        else:
            raise PyverbsRDMAError(f"Cannot create CM ID from {type(creator)}", 0)

    def _create_synchronous(self, addresses: AddrInfo) -> None:
        self._sync = EventChannel()
        with creating("Failed to create CM ID"):
            self._id = Identifier(self._sync, addresses.port_space)
            self._opened()
        try:
            if addresses.flags & RAI_PASSIVE:
                self.bind_addr(addresses)
                return
            self.resolve_addr(addresses)
            self.resolve_route()
            if self._qp_init_attr is not None:
                self.create_qp(self._qp_init_attr)
        except BaseException:
            self.close()
            raise

    def _take(self, identifier: Identifier, pd: PD | None) -> None:
        """Be the identifier that a request has made."""
        identifier.taken = True
        self._id = identifier
        self._opened()
        self._bound()
        self._pd = pd or self._pd

    def _bound(self) -> None:
        """The device is known: so are context and domain."""
        with deferred_signals.section(), self._identifier.changing:
            local = self._identifier.local
            if local is not None and self._ctx is None:
                self._driver = local.device
                self._ctx = cm_contexts.join(local.device)
                if self._pd is None:
                    self._pd = cm_contexts.domain_of(local.device)

    # what it is

    @property
    def _identifier(self) -> Identifier:
        self._require_open()
        assert self._id is not None
        return self._id

    @property
    def dev_name(self) -> str:
        """The device's name; `PyverbsUserError` where it is not known yet."""
        if self._ctx is None:
            raise PyverbsUserError("The CMID is bound to no device")
        return self._ctx.name

    @property
    def port_num(self) -> int:
        """The device's port, 0 where it is not known yet."""
        local = self._id.local if self._id is not None else None
        return local.port if local is not None else 0

    @property
    def event_channel(self) -> CMEventChannel | None:
        """The channel of its events; None of a synchronous one."""
        return self._event_channel

    @property
    def context(self) -> Context | None:
        """The device, once it is known."""
        return self._ctx

    @property
    def pd(self) -> PD | None:
        """The protection domain, once the device is known."""
        return self._pd

    @property
    def qpn(self) -> int | None:
        """The number of its queue pair; None where it has none."""
        qp = self._qp  # once: another thread may close this one
        return qp.qp_num if qp is not None else None

    # addresses

    def bind_addr(self, lai: AddrInfo) -> None:
        """Take the source address; one of a device binds the identifier to it."""
        require(lai, AddrInfo, "lai")
        if lai.source is None:
            raise PyverbsRDMAError("Failed to Bind ID: lai has no src_addr", errno.EINVAL)
        with translated("Failed to Bind ID"), deferred_signals.section():
            self._identifier.bind(lai.source)
        self._bound()

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        """Find the device that leads to the destination; ``timeout_ms`` is never needed."""
        require(rai, AddrInfo, "rai")
        if rai.destination is None:
            raise PyverbsRDMAError("Failed to Resolve Address: rai has no dst_addr", errno.EINVAL)
        with translated("Failed to Resolve Address"), deferred_signals.section():
            self._identifier.resolve_address(rai.destination, rai.source)
        self._await(events.ADDR_RESOLVED, "Failed to Resolve Address")
        self._bound()

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        """Find the way there; within ``timeout_ms`` on native links, where subnet administration is asked."""
        with translated("Failed to Resolve Route"):
            self._identifier.resolve_route(timeout_ms)
        self._await(events.ROUTE_RESOLVED, "Failed to Resolve Route")
        self._bound()

    def resolve_addrinfo(
        self,
        node: str | bytes | None = None,
        service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        """Find addresses; `query_addrinfo` has them after the event."""
        identifier = self._identifier
        found = AddrInfo()
        if int(flags) & RAI_PASSIVE:
            found.get_addrinfo(src=node, src_service=service, port_space=port_space, flags=flags)
        else:
            found.get_addrinfo(dst=node, dst_service=service, port_space=port_space, flags=flags)
        self._addresses = found
        identifier.queue_event(events.ADDRINFO_RESOLVED)
        self._await(events.ADDRINFO_RESOLVED, "Failed to Resolve AddrInfo")

    def query_addrinfo(self) -> AddrInfo:
        """What `resolve_addrinfo` has found; ``ENODATA`` before."""
        self._require_open()
        if self._addresses is None:
            raise PyverbsRDMAError("Failed to Query AddrInfo: nothing was resolved", errno.ENODATA)
        return self._addresses

    # connections

    def listen(self, backlog: int = 0) -> None:
        """Take requests at the bound address; at most ``backlog`` of them wait (0: 128)."""
        with translated("Listen Failed"):
            self._identifier.listen(int(backlog))

    def get_request(self) -> "CMID":
        """The next request to a synchronous listener, which is waited for: a new identifier, to be accepted
        or rejected.
        """
        if self._sync is None:
            raise PyverbsRDMAError("Failed to get request, no connection established", errno.EINVAL)
        self._require_open()
        event = self._next(self._sync, "Failed to get request, no connection established")
        if event.kind == events.DEVICE_REMOVAL:
            raise PyverbsRDMAError("Failed to get request: the device is gone", errno.ENODEV)
        if event.kind != events.CONNECT_REQUEST:
            raise PyverbsRDMAError("Failed to get request, no connection established", errno.EINVAL)
        made = CMID()
        made._sync = EventChannel()
        event.identifier.migrate(made._sync)
        made._qp_init_attr = self._qp_init_attr
        made._take(event.identifier, self._pd)
        if self._qp_init_attr is not None:
            made.create_qp(self._qp_init_attr)
        return made

    def connect(self, param: ConnParam | None = None) -> None:
        """Ask the destination for a connection, or for the queue pair of a datagram service."""
        with translated("Failed to Connect"):
            self._identifier.connection.connect(_parameters(param))
        self._await(events.ESTABLISHED, "Failed to Connect")

    def accept(self, param: ConnParam | None = None) -> None:
        """Accept the request."""
        with translated("Failed to Accept Connection"):
            self._identifier.connection.accept(_parameters(param))
        if self._identifier.connected:
            self._await(events.ESTABLISHED, "Failed to Accept Connection")

    def reject(self, private_data: bytes | None = None) -> None:
        """Reject the request, or the peer's answer."""
        with translated("Failed to Reject Connection"):
            self._identifier.connection.reject(bytes(private_data or b""))

    def establish(self) -> None:
        """Say that the program's own queue pair is ready, after ``RDMA_CM_EVENT_CONNECT_RESPONSE``."""
        with translated("Failed to Complete an active connection request"):
            self._identifier.connection.establish()

    def disconnect(self) -> None:
        """End the connection; its queue pair goes to ERR."""
        closed = self._identifier.state in states.ENDED
        with translated("Failed to Disconnect"):
            self._identifier.connection.disconnect()
        if not closed:
            self._await(events.DISCONNECTED, "Failed to Disconnect")

    # groups

    def join_multicast(
        self, addr: AddrInfo | None = None, mc_attr: JoinMCAttrEx | None = None, context: int = 0
    ) -> None:
        """Join the group that is the source of ``addr``, or of ``mc_attr``; its queue pair receives what is
        sent there.
        """
        if not addr and not mc_attr:
            raise PyverbsUserError("Join to multicast must have AddrInfo or JoinMCAttrEx arguments")
        send_only = False
        if mc_attr is not None:
            require(mc_attr, JoinMCAttrEx, "mc_attr")
            if not mc_attr.comp_mask & _ADDRESS:
                raise PyverbsRDMAError("Failed to Join multicast: addr is needed", errno.EINVAL)
            send_only = bool(mc_attr.comp_mask & _FLAGS) and mc_attr.join_flags == _SEND_ONLY
            addr = mc_attr.addr
        group = _group(addr, "Failed to Join multicast")
        with translated("Failed to Join multicast"):
            self._identifier.groups.join(group, send_only)
        self._await(events.MULTICAST_JOIN, "Failed to Join multicast")

    def leave_multicast(self, addr: AddrInfo) -> None:
        """Leave the group that is the source of ``addr``."""
        group = _group(addr, "Failed to leave multicast")
        with translated("Failed to leave multicast"):
            self._identifier.groups.leave(group)

    # the queue pair

    def create_qp(self, qp_init: QPInitAttr) -> None:
        """Make the queue pair that the identifier takes through its states.  Where ``qp_init`` names no
        completion queues it gets some, for `get_send_comp` and `get_recv_comp`.
        """
        require(qp_init, QPInitAttr, "qp_init")
        with deferred_signals.section(), self._identifier.changing:
            self._create_qp(qp_init)

    def _create_qp(self, qp_init: QPInitAttr) -> None:
        identifier = self._identifier
        if self._pd is None or self._qp is not None:
            why = "there is one" if self._qp is not None else "the CMID is bound to no device"
            raise PyverbsRDMAError(f"Failed to Create QP: {why}", errno.EINVAL)
        send, recv = qp_init.send_cq, qp_init.recv_cq
        cap = qp_init.cap
        try:
            if send is None:
                self._send_queue = WaitedQueue(self._pd, max(cap.max_send_wr, 1))
                send = self._send_queue.cq
            if recv is None:
                self._recv_queue = WaitedQueue(self._pd, max(cap.max_recv_wr, 1))
                recv = self._recv_queue.cq
            made = QPInitAttr(
                qp_init.qp_type,
                qp_init.qp_context,
                send,
                recv,
                qp_init.srq,
                cap,
                qp_init.sq_sig_all,
            )
            self._qp = QP(self._pd, made)
            identifier.queue_pair = self._qp.handle
            with translated("Failed to Create QP"):
                queue_pairs.begin(identifier, self._qp.handle)
        except BaseException:
            self._drop_queues()
            raise
        qp_init.cap = made.cap

    def _drop_queues(self) -> None:
        if self._id is not None:
            self._id.queue_pair = None
        for each in (self._qp, self._send_queue, self._recv_queue):
            if each is not None:
                each.close()
        self._qp = self._send_queue = self._recv_queue = None

    def query_qp(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """The queue pair's attributes, and what it was made of."""
        return self._queue_pair("Failed to query QP").query(attr_mask)

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        """What takes a queue pair of the program's own to INIT, RTR or RTS, and the mask that names it."""
        with translated("Failed to get QP attributes"):
            found = queue_pairs.attributes(self._identifier, int(qp_state))
        mask = 0
        for name in found:
            mask |= MASK[name]
        return QPAttr.of(found), int(ibv_qp_attr_mask(mask))

    def set_local_ece(self, ece: ECE) -> None:
        """Only the absence of options (vendor 0) can be set; others are ``EOPNOTSUPP``."""
        require(ece, ECE, "ece")
        self._require_open()
        if ece.vendor_id:
            refuse("Failed to set local ECE")

    def get_remote_ece(self) -> ECE:
        """The peer's options of enhanced connection establishment: none."""
        self._require_open()
        return ECE()

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> None:
        """An option of level ``RDMA_OPTION_ID``: 0 type of service, 1 reuse of the address, 2 one IP version
        only, 3 time-out of acknowledgements.
        """
        if int(level) != OPTION_ID:
            raise PyverbsRDMAError("Failed to set option: level: it is unknown", errno.ENOSYS)
        with translated("Failed to set option"):
            self._identifier.set_option(int(optname), int(optval))

    # events

    def migrate(self, channel: CMEventChannel) -> None:
        """Give its events to another channel from here on, also those that wait."""
        require(channel, CMEventChannel, "channel")
        with translated("Failed to migrate CM ID"):
            self._identifier.migrate(channel.channel)
        self._event_channel, self._sync = channel, None

    def _next(self, channel: EventChannel, what: str) -> IdentifierEvent:
        with translated(what):
            event = channel.next_event()
        assert event is not None
        return event

    def _await(self, kind: int, what: str) -> None:
        """Of a synchronous identifier: wait for what was asked for.  ECONNREFUSED where the peer refuses,
        else what went wrong.
        """
        if self._sync is None:
            return
        while True:
            event = self._next(self._sync, what)
            if event.kind == kind:
                return
            if event.kind == events.DEVICE_REMOVAL:
                raise PyverbsRDMAError(f"{what}: the device is gone", errno.ENODEV)
            if event.kind == events.REJECTED:
                raise PyverbsRDMAError(f"{what}: the peer refuses, reason {event.status}", errno.ECONNREFUSED)
            if event.status or event.kind == events.DISCONNECTED:
                code = -event.status if event.status < 0 else errno.ECONNREFUSED
                raise PyverbsRDMAError(what, code if event.status else errno.ECONNRESET)

    # the end

    def _close(self) -> None:
        for mr in self._mrs:
            mr.close()
        identifier = self._id
        assert identifier is not None
        with deferred_signals.section():  # all of it is closed, or nothing
            with identifier.changing:
                self._open = False
            # From the last one to the first, whatever one of them meets.
            with contextlib.ExitStack() as steps:
                if self._sync is not None:
                    steps.callback(self._sync.close)
                steps.enter_context(translated("Failed to close CMID"))
                steps.callback(identifier.close)
                if self._ctx is not None:
                    steps.callback(cm_contexts.leave, self._driver)
                steps.callback(self._drop_queues)
                steps.callback(identifier.groups.close)


def _parameters(param: ConnParam | None) -> ConnectionParameters | None:
    if param is None:
        return None
    require(param, ConnParam, "param")
    return param.parameters


def _group(addr: Any, what: str) -> SocketAddress:
    require(addr, AddrInfo, "addr")
    source: SocketAddress | None = addr.source
    if source is None:
        raise PyverbsRDMAError(f"{what}: there is no address", errno.EINVAL)
    return source
