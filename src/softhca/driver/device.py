"""The device driver: one open device of this process (the HDSD of the stack, below ``abstraction.py``).

It refuses misuse before anything crosses to the adapter; every error is a :class:`DriverError`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from softhca.driver import command_descriptors
from softhca.driver.agents import AgentHandle
from softhca.driver.channels import HostChannel
from softhca.driver.cq import Completion, CqHandle
from softhca.driver.descriptors import EventDescriptor
from softhca.driver.device_memory import DeviceMemory
from softhca.driver.ee import EeHandle
from softhca.driver.errors import DriverError, refusal
from softhca.driver.events import ASYNCHRONOUS, EventRouter
from softhca.driver.lent_rings import RingAllocator
from softhca.driver.memory import HostBuffer, MemoryKey, Registrar
from softhca.driver.paging import AttachedMemory, PageableMemory
from softhca.driver.qp import QpHandle
from softhca.driver.session import Session
from softhca.driver.srq import SrqHandle
from softhca.driver.work_queues import RssQpHandle, WqHandle, create_table
from softhca.memory.regions import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.queues import control_fields as control

if TYPE_CHECKING:
    from softhca.driver.connections import CmChannel

__all__ = [
    "Completion",
    "CqHandle",
    "DeviceDriver",
    "DriverError",
    "EeHandle",
    "HostBuffer",
    "MemoryKey",
    "QpHandle",
    "SrqHandle",
]

REMOTE_RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC


class DeviceDriver:
    """One open device.  ``channel`` must be attached already; closing the driver closes it.

    ``name``; ``guid`` of the adapter; ``alive``: not closed, not inherited over a fork, and the adapter is
    alive.  Any thread may call any method, as with libibverbs.
    """

    def __init__(self, name: str, channel: HostChannel) -> None:
        self.name = name
        self._command_fd = -1
        self.session = Session(channel)
        self._queue_pairs: dict[int, QpHandle] = {}
        self.queue_pair_failed = _failing(self._queue_pairs)
        self.events = EventRouter(channel, self.session, self.queue_pair_failed)
        self._channel = channel
        self._registrar = Registrar(self.session)
        self._device = self.session.call(control.QUERY_DEVICE)
        self.guid: int = self._device["node_guid"]

    @property
    def alive(self) -> bool:
        """Whether calls can succeed."""
        try:
            self.session.check()
        except DriverError:
            return False
        return True

    @property
    def lost(self) -> bool:
        """Whether the adapter has gone, or does not answer any more."""
        return not self.alive and self.session.lost

    def closing(self) -> None:
        """The device and everything on it is about to be closed: an adapter that does not answer is given up
        sooner.
        """
        self.session.closing()

    def close(self) -> None:
        """Leave the adapter, which frees everything that this device owned; may be called again.

        Threads that wait get EIO, as does every later call.  A thread inside another call completes it or
        gets EIO.
        """
        self.session.dead = self.session.dead or "the device is closed"
        if os.getpid() == self.session.pid:
            self._channel.wake_waiters()
            self._channel.close()  # also when the adapter has died: the channel's descriptors are still open
        # Handles, and host memory with them, are freed when the program drops its references.
        self._queue_pairs.clear()
        self.events.clear()
        self._close_command_descriptor()

    def wake_waiters(self) -> None:
        """Wake every thread that waits, so that it checks whether its wait has ended (`wait_completion`)."""
        self._channel.wake_waiters()

    def inherited(self) -> None:
        """This is a forked child: refuse every call from now on.  The owner of the channel abandons it."""
        self.session.inherited()
        self.events.abandon()
        self._close_command_descriptor()

    def progress(self) -> bool:
        """Drive the engine when it is embedded; whether it made progress."""
        self.session.check()
        return self._channel.progress()

    def look(self) -> bool:
        """`progress` for a thread that has other work to do: it does not nap (`HostChannel.look`)."""
        self.session.check()
        return self._channel.look()

    # attributes

    def query_device(self) -> dict[str, Any]:
        """``ibv_device_attr`` by name, and ``profile`` (``hca``, ``tca+uc``); it and ``fw_ver`` are text."""
        device = self.session.call(control.QUERY_DEVICE)
        for name in ("fw_ver", "profile"):
            device[name] = device[name].decode("ascii", "replace")
        return device

    def query_port(self, port: int) -> dict[str, int]:
        """``ibv_port_attr`` by name; EINVAL for a port that does not exist."""
        return self.session.call(control.QUERY_PORT, port_num=_u8(port, "port"))

    def query_gid(self, port: int, index: int) -> bytes:
        """A GID of the table, zeros for an empty entry; EINVAL beyond the table's end."""
        gid: bytes = self.session.call(control.QUERY_GID, port_num=_u8(port, "port"), index=index)["gid"]
        return gid

    def query_pkey(self, port: int, index: int) -> int:
        """A P_Key of the table, 0 for an empty entry; EINVAL beyond the table's end."""
        pkey: int = self.session.call(control.QUERY_PKEY, port_num=_u8(port, "port"), index=index)["pkey"]
        return pkey

    def query_counters(self, port: int = 0, qp: int = 0, ee: int = 0) -> dict[str, int]:
        """Counters of a queue pair, of an EE context, or of the port, by name."""
        scope = control.COUNTERS_QP if qp else control.COUNTERS_EE if ee else control.COUNTERS_PORT
        element = qp or ee or port
        return dict(self.session.call(control.QUERY_COUNTERS, scope=scope, element=element)["counters"])

    def check_limits(self, limits: Mapping[str, str], wanted: Mapping[str, int]) -> None:
        """EINVAL where a value among ``wanted`` is negative, or exceeds the device attribute that ``limits``
        has for its name.
        """
        for name, limit in limits.items():
            value, most = wanted[name], self._device[limit]
            if value < 0:
                raise DriverError(errno.EINVAL, f"{name} = {value}: expected 0…{most}")
            if value > most:
                raise DriverError(errno.EINVAL, f"{name} = {value} is beyond the device's {limit} = {most}")

    # memory

    def alloc_pd(self) -> int:
        """The number of a new protection domain."""
        pd: int = self.session.call(control.ALLOC_PD)["pd"]
        return pd

    def dealloc_pd(self, pd: int) -> None:
        """EBUSY while anything is in the domain."""
        self.session.call(control.DEALLOC_PD, pd=pd)

    def alloc_host_memory(self, length: int, access: int = 0) -> HostBuffer:
        """Memory on the shared memfd; for regions with remote rights in their ``access`` from the arena that
        peers on this host may map, where there is one."""
        return self._registrar.allocate(length, bool(access & REMOTE_RIGHTS))

    def alloc_dm(self, length: int) -> DeviceMemory:
        """Device memory: bytes beside those that the program has, which other processes may import by their
        number.  EINVAL, ENOMEM."""
        return DeviceMemory.allocate(self.session, length)

    def import_dm(self, number: int) -> DeviceMemory:
        """That of an imported context in another process (`import_context`).  ENOENT: there is none of this
        number."""
        return DeviceMemory.imported(self.session, number)

    def reg_dm(self, pd: int, memory: DeviceMemory, offset: int, length: int, access: int) -> MemoryKey:
        """Register a part of it, whoever has made it; requests name its first byte 0.  EINVAL, ENOMEM."""
        return self._registrar.register_memory(pd, memory, offset, length, access)

    def file_of(self, address: int, length: int) -> tuple[int, int] | None:
        """The memfd, and the offset in it, of memory that `alloc_host_memory` gave; None for any other.  The
        descriptor is the driver's."""
        return self._channel.memory.file_of(address, length)

    def reg_mr(
        self, pd: int, address: int, length: int, access: int, iova: int | None = None, buffer: Any = None
    ) -> MemoryKey:
        """Register ``length`` bytes at ``address`` (inside ``buffer`` when one is given, which is kept
        alive).

        ``iova`` names the first byte in requests; by default it is ``address``.  EINVAL, ENOMEM, EACCES
        (read-only buffer), EPERM or what else keeps an adapter process from this process's memory.

        With ON_DEMAND in ``access`` memory that is not the device's is looked up at each access: it may be
        mapped and unmapped at any time.  EOPNOTSUPP where the adapter may not reach it so.
        """
        return self._registrar.register(pd, address, length, access, iova, buffer)

    def reg_implicit_mr(self, pd: int, access: int, held: bool = False) -> MemoryKey:
        """Register all of this process's memory, on demand: requests name its bytes by their addresses.

        ``held``: the caller keeps mapped what a request names until that is done, so that it is copied
        without asking the operating system; with no other right, and an adapter in this process.
        EINVAL where ``access`` has no ON_DEMAND, or for what is held otherwise; EOPNOTSUPP where the adapter
        may not reach this process's memory; ENOMEM.
        """
        if not access & ON_DEMAND:
            raise DriverError(errno.EINVAL, "access: a region without a range must be on demand")
        return self._registrar.register_implicit(pd, access, held)

    def alloc_null_mr(self, pd: int) -> MemoryKey:
        """A region without memory, of which zeros are read; its rkey is 0.  `dereg_mr` ends it.  ENOMEM."""
        return self._registrar.allocate_null(pd)

    def advise_mr(
        self, pd: int, advice: int, flags: int, elements: Sequence[tuple[int, int, int]]
    ) -> None:
        """Bring pages of regions on demand; ``elements`` are ``(address, length, lkey)`` as requests name
        them.

        ``advice`` (``ibv_advise_mr_advice``): PREFETCH brings them to be read, PREFETCH_WRITE to be written,
        PREFETCH_NO_FAULT nothing.  EOPNOTSUPP for another one, EINVAL for ``flags`` that there are not, no
        element, or a region that is not on demand; EFAULT for a key that names none of ``pd``, a range
        outside, or one that may not be written; with ADVISE_FLUSH also where the range is not mapped.
        """
        self._registrar.advise(pd, advice, flags, elements)

    def reg_paged(
        self, pd: int, memory: PageableMemory | AttachedMemory, access: int, iova: int | None = None
    ) -> MemoryKey:
        """Register the whole of a pageable memory.

        ``iova`` names the first byte in requests; by default it is the view's address where this process owns
        the memory, else 0.  EINVAL, ENOMEM (regions, attachments), EOPNOTSUPP (``MW_BIND``), EACCES (its
        owner has closed it).
        """
        va = memory.address if iova is None else iova
        key = self._registrar.register_paged(pd, memory, va, access)
        memory.used_by(self, key.handle)
        if memory.owned:
            self.events.suppress(control.EVENT_PAGE_FAULT, key.lkey)
        return key

    def set_data_access(self, allowed: bool) -> bool:
        """Allow or forbid the adapter to access registered memory; whether this device allowed it before.

        While it is forbidden, every access to memory waits; commands, queues, completions and events go on.
        With several devices open on the adapter, all must allow it.
        """
        return bool(self.session.call(control.SET_DATA_ACCESS, allowed=int(allowed))["was_allowed"])

    def rereg_mr(
        self, handle: int, flags: int, pd: int, address: int, length: int, access: int, buffer: Any = None
    ) -> MemoryKey:
        """Change what ``flags`` (``ibv_rereg_mr_flags``) name; a new translation gives new keys."""
        return self._registrar.reregister(handle, flags, pd, address, length, access, buffer)

    def dereg_mr(self, handle: int) -> None:
        """Deregister.  The keys are invalid at once; then the buffer is released."""
        lkey = self._registrar.key_of(handle)
        self._registrar.deregister(handle)
        self.events.dispatch()
        self.events.forget(control.MR_EVENTS, lkey)

    def alloc_mw(self, pd: int, type: int) -> tuple[int, int]:
        """A memory window of ``type`` 1 or 2: its number, by which work requests name it, and its key."""
        reply = self.session.call(control.ALLOC_MW, pd=pd, type=type)
        return reply["mw"], reply["rkey"]

    def dealloc_mw(self, number: int) -> None:
        """Free a memory window, bound or not.  Its key is invalid at once."""
        self.session.call(control.DEALLOC_MW, mw=number)

    def alloc_fast_mr(self, pd: int, max_pages: int) -> tuple[int, int]:
        """A region without pages, for fast registration: its number and its key."""
        reply = self.session.call(control.ALLOC_FAST_MR, pd=pd, max_pages=max_pages)
        return reply["mr"], reply["key"]

    def dereg_fast_mr(self, number: int) -> None:
        """Free it, registered or not; EBUSY while memory windows are bound to it."""
        self.session.call(control.DEREG_FAST_MR, mr=number)

    def pages_of(self, handle: int, offset: int, length: int) -> tuple[int, int, int]:
        """Where ``length`` bytes of a registered region are: first frame, pages, offset in the first."""
        return self._registrar.pages_of(handle, offset, length)

    # queues

    def create_cq(
        self, entries: int, channel: Hashable | None = None, allocator: RingAllocator | None = None
    ) -> CqHandle:
        """A completion queue; its events go to ``channel``, any hashable token (see `wait_completion`).

        ``allocator``, here and for other queues, is asked for the memory of rings (`LentRings`).
        """
        self.check_limits({"cqe": "max_cqe"}, {"cqe": entries})
        cq = CqHandle(self, entries, channel, allocator)
        self.events.add(cq)
        return cq

    def open_xrcd(self, descriptor: int = -1, create: bool = True, exclusive: bool = False) -> int:
        """Open the XRC domain of the file that ``descriptor`` has open, or (−1) make one for this device
        alone.

        ``create``: make it where the file has none (else EAGAIN); ``exclusive``: it must have none (EINVAL).
        EBADF: no such descriptor.
        """
        fields = {}
        if descriptor != -1:
            try:
                status = os.fstat(descriptor)
            except OSError as error:
                raise refusal(error) from None
            fields = {"device": status.st_dev, "inode": status.st_ino}
        flags = control.XRCD_FILE if descriptor != -1 else 0
        flags |= (control.XRCD_CREATE if create else 0) | (control.XRCD_EXCLUSIVE if exclusive else 0)
        number: int = self.session.call(control.OPEN_XRCD, flags=flags, **fields)["xrcd"]
        return number

    def close_xrcd(self, number: int) -> None:
        """Close it; EBUSY while queues of this device are in it."""
        self.session.call(control.CLOSE_XRCD, xrcd=number)

    def create_srq(
        self,
        pd: int,
        max_wr: int,
        max_sge: int,
        limit: int = 0,
        cq: CqHandle | None = None,
        xrcd: int = 0,
        allocator: RingAllocator | None = None,
    ) -> SrqHandle:
        """A shared receive queue; with ``cq``, one of the XRC domain ``xrcd`` whose completions go there."""
        return SrqHandle(self, pd, max_wr, max_sge, limit, cq, xrcd, allocator)

    def create_qp(
        self,
        pd: int,
        type: int,
        send_cq: CqHandle | None,
        recv_cq: CqHandle | None,
        srq: SrqHandle | None,
        max_send_wr: int,
        max_recv_wr: int,
        max_send_sge: int,
        max_recv_sge: int,
        max_inline: int,
        signal_all: bool,
        create_flags: int = 0,
        xrcd: int = 0,
        rdd: int = 0,
        allocator: RingAllocator | None = None,
    ) -> QpHandle:
        """A queue pair of ``type`` (``ibv_qp_type``), in RESET.  EOPNOTSUPP for a type that there is not,
        or not on this device's link.

        ``create_flags``: ``control_fields.CREATE_TELLS_LOSSES``, for UC.  An XRC initiator takes no
        ``recv_cq`` and no ``srq``; an XRC target only ``xrcd``, the domain that it is for (``pd`` is 0).  A
        reliable datagram queue pair takes ``rdd``, its domain.
        """
        if type == control.QPT_RAW_PACKET and not self._device["max_raw_ethy_qp"]:
            raise DriverError(
                errno.EOPNOTSUPP, "qp_type: this device has no raw packets"
            )
        caps = {
            "max_send_wr": max_send_wr,
            "max_recv_wr": max_recv_wr,
            "max_send_sge": max_send_sge,
            "max_recv_sge": max_recv_sge,
            "max_inline_data": max_inline,
        }
        qp = QpHandle(
            self, pd, type, send_cq, recv_cq, srq, caps, signal_all, create_flags, xrcd, rdd, allocator
        )
        self._queue_pairs[qp.number] = qp
        return qp

    def create_wq(
        self, pd: int, cq: CqHandle, max_wr: int, max_sge: int, allocator: RingAllocator | None = None
    ) -> WqHandle:
        """A work queue, in RESET.  EOPNOTSUPP where no Ethernet frames arrive."""
        wq = WqHandle(self, pd, cq, max_wr, max_sge, allocator)
        self._queue_pairs[wq.number] = wq
        return wq

    def create_rwq_ind_table(self, log_size: int, queues: Sequence[WqHandle]) -> int:
        """The number of a new table of 2^``log_size`` work queues, each any number of times.  EINVAL for
        another number of queues."""
        return create_table(self, log_size, queues)

    def destroy_rwq_ind_table(self, number: int) -> None:
        """Free it; EBUSY while queue pairs have it."""
        self.session.call(control.DESTROY_RWQ_IND_TABLE, rwq_ind_tbl=number)

    def create_rss_qp(self, pd: int, table: int, function: int, fields: int, key: bytes) -> RssQpHandle:
        """A raw packet queue pair whose frames go to the work queues of ``table``: which, tells the hash
        ``function`` (``ibv_rx_hash_function_flags``) with ``key`` over ``fields`` (``ibv_rx_hash_fields``).
        EOPNOTSUPP for another function or field, EINVAL for a key of another length."""
        qp = RssQpHandle(self, pd, table, function, fields, key)
        self._queue_pairs[qp.number] = qp
        return qp

    def alloc_rdd(self) -> int:
        """The number of a new reliable datagram domain; EOPNOTSUPP where the adapter has no such service."""
        number: int = self.session.call(control.ALLOC_RDD)["rdd"]
        return number

    def dealloc_rdd(self, number: int) -> None:
        """Free it; EBUSY while queue pairs or EE contexts are in it."""
        self.session.call(control.DEALLOC_RDD, rdd=number)

    def create_ee(self, rdd: int) -> EeHandle:
        """An end-to-end context of the domain ``rdd``, in RESET."""
        return EeHandle(self, rdd)

    def forget_queue_pair(self, qp: QpHandle) -> None:
        """A queue pair is destroyed."""
        self._queue_pairs.pop(qp.number, None)

    # datagrams

    def create_ah(self, pd: int, ah_attr: Mapping[str, Any]) -> int:
        """An address handle of an address vector (``ibv_ah_attr``, flattened: ``dgid``, ``sgid_index``,
        ``sl`` …).
        """
        ah: int = self.session.call(control.CREATE_AH, pd=pd, **ah_attr)["ah"]
        return ah

    def destroy_ah(self, number: int) -> None:
        """Destroy an address handle."""
        self.session.call(control.DESTROY_AH, ah=number)

    def attach_mcast(self, qpn: int, gid: bytes, lid: int = 0) -> None:
        """Let a UD queue pair receive what is sent to a multicast GID."""
        self.session.call(control.ATTACH_MCAST, qp_num=qpn, gid=gid, lid=lid)

    def detach_mcast(self, qpn: int, gid: bytes, lid: int = 0) -> None:
        """Stop that; EINVAL when it was not attached."""
        self.session.call(control.DETACH_MCAST, qp_num=qpn, gid=gid, lid=lid)

    def attach_raw(self, qpn: int, service: int) -> None:
        """Let a raw queue pair receive the datagrams of a raw service (`wire.raw`), or of all that no
        other has (`ALL_RAW`).  EBUSY when another queue pair of the adapter receives it.
        """
        self.session.call(control.ATTACH_RAW, qp_num=qpn, service=service)

    def detach_raw(self, qpn: int, service: int) -> None:
        """Stop that; EINVAL when it was not attached."""
        self.session.call(control.DETACH_RAW, qp_num=qpn, service=service)

    def create_flow(
        self, qpn: int, port: int, type: int, priority: int, value: bytes = b"", mask: bytes = b""
    ) -> int:
        """The number of a new rule: frames whose keys (`wire.ethernet`) have ``value`` where ``mask`` has
        ones are for a raw packet queue pair of an Ethernet port.  ENOSPC for too many different masks.
        """
        number: int = self.session.call(
            control.CREATE_FLOW, qp_num=qpn, port_num=port, type=type, priority=priority, value=value,
            mask=mask,
        )["flow"]  # fmt: skip
        return number

    def destroy_flow(self, number: int) -> None:
        """End a rule."""
        self.session.call(control.DESTROY_FLOW, flow=number)

    def register_agent(
        self, port: int, management_class: int, class_version: int, methods: Iterable[int], entries: int
    ) -> AgentHandle:
        """Take part in management through queue pair 1 (of the subnet's classes: 0) of a port, with room for
        ``entries`` datagrams: those of a class's requests with ``methods``, and responses to what is sent.

        EBUSY: another agent of the port has one of the methods; EPERM: the adapter keeps queue pair 0 to
        itself; EOPNOTSUPP: the port has none.
        """
        return AgentHandle(self, _u8(port, "port"), management_class, class_version, methods, entries)

    def open_connections(
        self, port: int, entries: int = 128, on_event: Callable[[], None] | None = None
    ) -> CmChannel:
        """A channel for connections on a port, with room for ``entries`` events.  ENOMEM: too many."""
        from softhca.driver.connections import CmChannel

        return CmChannel(self, _u8(port, "port"), entries, on_event)

    # events

    def next_event(self, timeout_s: float | None = None) -> tuple[int, int] | None:
        """The next asynchronous event (``ibv_event_type``, number of the element); None after
        ``timeout_s``.

        The death of an adapter process is the last one, ``IBV_EVENT_DEVICE_FATAL``.
        """
        try:
            self.session.check()
        except DriverError:
            if not self.session.gone or self.events.death_delivered:
                raise
        return self.events.next_event(timeout_s)

    def completion_descriptor(self, channel: Hashable) -> EventDescriptor:
        """What is readable while ``channel`` has events (`wait_completion`); closed by `close_channel`."""
        return self.events.descriptor(channel)

    def event_descriptor(self) -> EventDescriptor:
        """What is readable while there are asynchronous events (`next_event`); closed with the device."""
        return self.events.descriptor(ASYNCHRONOUS)

    def command_descriptor(self) -> int:
        """A descriptor of this open device's own, the same at each call; closed with the device.  Who has it,
        or a duplicate, may import this device's objects (`import_context`)."""
        self.session.check()
        with self.session.lock:
            if self._command_fd < 0:
                place = command_descriptors.MeetingPlace(self.name, self._channel.meeting_place)
                try:
                    made = command_descriptors.make(place)
                except OSError as error:
                    raise refusal(error, "making a descriptor") from None
                try:
                    self._pass(control.EXPORT_CONTEXT, made)
                except BaseException:
                    os.close(made)
                    raise
                self._command_fd = made
            return self._command_fd

    def _pass(self, command: int, descriptor: int) -> None:
        """A command about a descriptor."""
        try:
            number = self._channel.pass_descriptor(descriptor)
        except OSError as error:
            raise refusal(error, "passing the descriptor to the adapter") from None
        self.session.call(command, descriptor=number)

    def import_context(self, descriptor: int) -> None:
        """Show the adapter the command descriptor of another device that is open on it, in whatever process:
        its domains and regions may be imported from now on.  EINVAL: it is none of such a device.
        """
        self._pass(control.IMPORT_CONTEXT, descriptor)

    def import_pd(self, pd: int) -> None:
        """Use a domain of an imported context as one's own, until `unimport_pd`; ENOENT, EALREADY."""
        self.session.call(control.IMPORT_PD, pd=pd)

    def unimport_pd(self, pd: int) -> None:
        """Use it no more, also where its owner has freed it; EBUSY while anything of this device is in it."""
        try:
            self.session.call(control.UNIMPORT_PD, pd=pd)
        except DriverError as error:
            if error.errno != errno.EINVAL:
                raise

    def import_mr(self, pd: int, handle: int) -> tuple[MemoryKey, int]:
        """The keys and the length of a region in an imported domain; it stays who registered it's.  ENOENT
        where there is none."""
        reply = self.session.call(control.IMPORT_MR, pd=pd, mr=handle)
        return MemoryKey(handle, reply["lkey"], reply["rkey"]), reply["length"]

    def _close_command_descriptor(self) -> None:
        fd, self._command_fd = self._command_fd, -1
        if fd >= 0:
            os.close(fd)

    def would_block(self, channel: Hashable = ASYNCHRONOUS) -> bool:
        """Whether a program that waits there blocks: it has not made the descriptor non-blocking."""
        made = self.events.made_descriptor(channel)
        return made is None or made.blocking

    def close_channel(self, channel: Hashable) -> None:
        """Nobody waits for the channel any more."""
        self.events.close_descriptor(channel)
        self.wake_waiters()

    def wait_for(self, ended: Callable[[], bool], timeout_s: float | None = None) -> None:
        """As `EventRouter.wait_until`."""
        self.events.wait_until(ended, timeout_s)

    def wait_completion(
        self,
        channel: Hashable,
        timeout_s: float | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> CqHandle | None:
        """The completion queue of ``channel`` whose event comes next; None after ``timeout_s``, or once
        ``ended()`` is true, which is asked when `wake_waiters` is called.
        """
        self.session.check()
        return self.events.next_completion(channel, timeout_s, ended)


def _failing(queue_pairs: Mapping[int, QpHandle]) -> Callable[[int], None]:
    """What marks a queue pair as in error, by its number, after a completion or an event has said so."""

    def failed(number: int) -> None:
        qp = queue_pairs.get(number)
        if qp is not None:
            qp.failed()

    return failed


def _u8(value: int, name: str) -> int:
    if not 0 <= value <= 0xFF:
        raise DriverError(errno.EINVAL, f"{name} = {value}: expected 0…255")
    return value
