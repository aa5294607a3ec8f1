"""Devices: the list of them, opening one (`Context`), what it says of itself, and its asynchronous events."""

import errno
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from softhca.driver import registry
from softhca.machine.signals import suppressed
from softhca.verbs.absent import refuse
from softhca.verbs.base import PyverbsObject, Resource, creating, read_only, require, translated
from softhca.verbs.device_attributes import (
    CompCntrCaps,
    CQModerationCaps,
    DeviceAttr,
    DeviceAttrEx,
    ODPCaps,
    PacketPacingCaps,
    PCIAtomicCaps,
    PortAttr,
    QueryDeviceExInput,
    RSSCaps,
    TMCaps,
    TSOCaps,
)
from softhca.verbs.device_enums import (
    ibv_gid_type,
    ibv_gid_type_sysfs,
    ibv_node_type,
    ibv_transport_type,
    ibv_values_mask,
)
from softhca.verbs.device_text import (
    guid_format,
    guid_to_hex,
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    str_from_flags,
    translate_device_caps,
    translate_event_type,
    translate_gid_type,
    translate_link_layer,
    translate_mtu,
    translate_node_type,
    translate_port_cap_flags,
    translate_port_cap_flags2,
    translate_transport_type,
    width_to_str,
)
from softhca.verbs.gid import GID
from softhca.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from softhca.verbs.sharing import context_of, remember
from softhca.verbs.structures import INT32, UINT32, UINT64, ReadOnly
from softhca.verbs.utils import gid_str, lines

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

__all__ = [
    "AsyncEvent",
    "CQModerationCaps",
    "CompCntrCaps",
    "Context",
    "Device",
    "DeviceAttr",
    "DeviceAttrEx",
    "GIDEntry",
    "ODPCaps",
    "PCIAtomicCaps",
    "PacketPacingCaps",
    "PortAttr",
    "QueryDeviceExInput",
    "RSSCaps",
    "TMCaps",
    "TSOCaps",
    "get_device_list",
    "guid_format",
    "guid_to_hex",
    "phys_state_to_str",
    "port_state_to_str",
    "rdma_get_devices",
    "speed_to_str",
    "str_from_flags",
    "translate_device_caps",
    "translate_event_type",
    "translate_gid_type",
    "translate_link_layer",
    "translate_mtu",
    "translate_node_type",
    "translate_port_cap_flags",
    "translate_port_cap_flags2",
    "translate_transport_type",
    "width_to_str",
]


_RAW_CLOCK = int(ibv_values_mask.IBV_VALUES_MASK_RAW_CLOCK)
_LANE_SPEEDS = {1: 25, 2: 50, 4: 100, 8: 100, 16: 140, 32: 250, 64: 500, 128: 1000, 256: 2000}


class Device(PyverbsObject):
    """One entry of the device list.  ``name`` is bytes, as in pyverbs."""

    def __init__(
        self, name: bytes, guid: int | None, node_type: int, transport_type: int, index: int
    ) -> None:
        self._name = name
        self._guid = guid
        self._node_type = node_type
        self._transport_type = transport_type
        self._index = index

    @property
    def name(self) -> bytes:
        """The device's name."""
        return self._name

    @property
    def node_type(self) -> int:
        """An ``ibv_node_type``."""
        return self._node_type

    @property
    def transport_type(self) -> int:
        """An ``ibv_transport_type``."""
        return self._transport_type

    @property
    def guid(self) -> int:
        """The node GUID; the device is opened for a moment to read it."""
        if self._guid is None:
            with Context(name=self._name.decode()) as context:
                self._guid = context.guid
        return self._guid

    @property
    def index(self) -> int:
        """Position in the list."""
        return self._index

    def __str__(self) -> str:
        return (
            f"Device {self._name.decode()}, node type {translate_node_type(self._node_type)}, transport type "
            f"{translate_transport_type(self._transport_type)}, guid {guid_to_hex(self.guid)}, "
            f"index {self._index}"
        )


def get_device_list() -> list[Device]:
    """The devices of this process (``SOFTHCA_DEVICES``), in their order."""
    with translated("Failed to get devices list"):
        names = registry.names()
    return [
        Device(name.encode(), None, ibv_node_type.IBV_NODE_CA, ibv_transport_type.IBV_TRANSPORT_IB, index)
        for index, name in enumerate(names)
    ]


def rdma_get_devices() -> list[Device]:
    """The devices that a connection manager can use: all of them."""
    return get_device_list()


class Context(Resource):
    """An open device.

    ``name`` chooses one of `get_device_list`; without it the first device is opened.  Unknown names and
    devices that cannot be opened raise `PyverbsRDMAError`.  ``cmd_fd`` opens the device of another context
    again (`sharing`).
    """

    __slots__ = ("_cmd_fd", "_name", "_original")
    _closes_device = True
    name: str = read_only("_name", "The device's name.")

    def __init__(self, name: str | None = None, attr: object = None, cmd_fd: int | None = None) -> None:
        if attr is not None:
            refuse("Failed to open a device with a maker's attributes")
        self._cmd_fd: int | None = None  # of an import
        self._original: Context | None = None
        if cmd_fd is not None:
            self._import(cmd_fd)
            return
        with translated("Failed to get devices list"):
            names = list(registry.names())
        if name is None:
            if not names:
                raise PyverbsRDMAError("There is no device", errno.ENODEV)
            name = names[0]
        elif name not in names:
            raise PyverbsRDMAError(f"Failed to find device {name}", errno.ENODEV)
        with creating(f"Failed to open device {name}"):
            self._driver = registry.open_device(name)
            self._name = name
            self._opened()

    def _import(self, cmd_fd: int) -> None:
        """Open the device again that ``cmd_fd`` stands for; the descriptor is this context's from here on."""
        cmd_fd = INT32(cmd_fd)
        self._original = context_of(cmd_fd)
        if self._original is None:
            with creating("Failed to import device"):
                self._driver = registry.import_device(cmd_fd)
                self._name = self._driver.name
                self._cmd_fd = cmd_fd
                self._opened()
            return
        self._driver = self._original._driver
        self._name = self._original.name
        self._cmd_fd = cmd_fd
        self._opened(self._original)

    @property
    def is_foreign(self) -> bool:
        """Whether it is an import of another process's context, whose objects stand for themselves."""
        return self._cmd_fd is not None and self.source is self

    @property
    def source(self) -> "Context":
        """The context that this one is an import of, or itself."""
        return self._original or self

    def _close(self) -> None:
        """Close what was made on it, then the device.

        `close` returns within seconds also where an adapter process does not answer (it is stopped): then all
        of this process is given back, and the adapter frees the rest when it goes on, or is ended.
        """
        if self._original is None:
            self._driver.closing()
        try:
            super()._close()
        except PyverbsError:
            raise
        except BaseException:  # of a signal handler: the next close leaves the device
            self._open = self._open or self._closes_device
            raise

    def _destroy(self) -> None:
        """The device itself is closed by `_released`, also when it has died."""

    def _released(self) -> None:
        if self._cmd_fd is not None:
            descriptor, self._cmd_fd = self._cmd_fd, -1  # once, whatever interrupts it
            with suppressed(OSError):  # the program may have closed it
                os.close(descriptor)
        if self._original is not None:
            return
        with translated(f"Failed to close device {self.name}"):
            self._driver.close()

    @property
    def driver(self) -> "DeviceDriver":
        """The open device; raises `PyverbsUserError` when this context is closed."""
        self._require_open()
        return self._driver

    @property
    def guid(self) -> int:
        """The node GUID as a number (most significant byte first)."""
        return self.driver.guid

    @property
    def num_comp_vectors(self) -> int:
        """Completion vectors: one."""
        return 1

    def progress(self) -> None:
        """Drive the device once: for programs that watch registered memory instead of polling a queue.

        Needed only where no other verbs call and no background thread drives it.  Called again and again in
        vain, beside programs that want the processor, it sleeps for up to 0.5 ms; it never blocks else.
        """
        with translated("Failed to drive the device"):
            self.driver.progress()

    def query_device(self) -> DeviceAttr:
        """Identity and limits of the device."""
        with translated(f"Failed to query device {self.name}"):
            return DeviceAttr(self.driver.query_device())

    def query_device_ex(self, ex_input: QueryDeviceExInput | None = None) -> DeviceAttrEx:
        """Limits and capabilities of extensions."""
        if ex_input is not None:
            require(ex_input, QueryDeviceExInput, "ex_input")
        if ex_input is not None and ex_input.comp_mask:
            raise PyverbsRDMAError(
                "Failed to query device: comp_mask: no extension of query_device_ex is defined", errno.EINVAL
            )
        with translated(f"Failed to query EX device {self.name}"):
            return DeviceAttrEx(self.driver.query_device())

    def query_port(self, port_num: int) -> PortAttr:
        """State and properties of a port (the first is 1)."""
        port_num = UINT32(port_num)
        with translated(f"Failed to query port {port_num}"):
            return PortAttr(self.driver.query_port(port_num))

    def query_pkey(self, port_num: int, index: int) -> int:
        """The P_Key at ``index``, in network byte order as libibverbs returns it."""
        port_num, index = UINT32(port_num), INT32(index)
        with translated(f"Failed to query pkey {index} of port {port_num}"):
            pkey = self.driver.query_pkey(port_num, index)
        return int.from_bytes(pkey.to_bytes(2, "big"), sys.byteorder)

    def get_pkey_index(self, port_num: int, pkey: int) -> int:
        """The index of a P_Key (network byte order) in the port's table."""
        for index in range(self.query_port(port_num).pkey_tbl_len):
            if self.query_pkey(port_num, index) == pkey:
                return index
        raise PyverbsRDMAError(
            f"Failed to get pkey index: pkey = {pkey}: port_num = {port_num} has no such P_Key", errno.ENOENT
        )

    def query_gid(self, port_num: int, index: int) -> GID:
        """The GID at ``index`` of the port's table."""
        port_num, index = UINT32(port_num), INT32(index)
        with translated(f"Failed to query gid {index} of port {port_num}"):
            return GID.from_bytes(self.driver.query_gid(port_num, index))

    def query_gid_type(self, port_num: int, index: int) -> int:
        """Type of a GID as sysfs names it: RoCE v2, or InfiniBand/RoCE v1."""
        self.query_gid(port_num, index)
        if self._is_roce(port_num):
            return ibv_gid_type_sysfs.IBV_GID_TYPE_SYSFS_ROCE_V2
        return ibv_gid_type_sysfs.IBV_GID_TYPE_SYSFS_IB_ROCE_V1

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> "GIDEntry":
        """One entry of a port's GID table; ``ENODATA`` where it is empty.  ``flags`` must be 0."""
        port_num, gid_index = UINT32(port_num), UINT32(gid_index)
        if UINT32(flags):
            raise PyverbsRDMAError(
                "Failed to query gid: flags: none of query_gid_ex is defined", errno.EINVAL
            )
        gid = self.query_gid(port_num, gid_index)
        if not any(gid.raw):
            raise PyverbsRDMAError(
                f"Failed to query gid: gid_index = {gid_index}: the entry of port_num = {port_num} is empty",
                errno.ENODATA,
            )
        return self._gid_entry(port_num, gid_index, gid.raw)

    def _gid_entry(self, port_num: int, gid_index: int, raw: bytes) -> "GIDEntry":
        kind = ibv_gid_type.IBV_GID_TYPE_ROCE_V2 if self._is_roce(port_num) else ibv_gid_type.IBV_GID_TYPE_IB
        return GIDEntry(
            int.from_bytes(raw[:8], sys.byteorder),
            int.from_bytes(raw[8:], sys.byteorder),
            gid_index,
            port_num,
            int(kind),
        )

    def query_gid_table(self, max_entries: int, flags: int = 0) -> list["GIDEntry"]:
        """The used entries of all ports' GID tables.  More of them than ``max_entries`` (at least 1) are
        refused with ``-EINVAL``, whose sign is libibverbs' own here.  ``flags`` must be 0.
        """
        max_entries = UINT64(max_entries)
        if UINT32(flags):
            raise PyverbsRDMAError(
                "Failed to query gid table: flags: none of query_gid_table is defined", -errno.EINVAL
            )
        entries: list[GIDEntry] = []
        for port_num in range(1, self.query_device().phys_port_cnt + 1):
            for index in range(self.query_port(port_num).gid_tbl_len):
                raw = self.query_gid(port_num, index).raw  # asked for once: it may change at any moment
                if any(raw):
                    entries.append(self._gid_entry(port_num, index, raw))
        if len(entries) > max_entries or not max_entries:
            raise PyverbsRDMAError(
                f"Failed to query gid table: max_entries = {max_entries}: there are {len(entries)} entries",
                -errno.EINVAL,
            )
        return entries

    def query_counters(self, port: int = 0, qp: int = 0) -> dict[str, int]:
        """Packets, retransmissions and drops by reason: of the device, of one port or of one QP number."""
        with translated("Failed to query counters"):
            return dict(self.driver.query_counters(port, qp))

    def query_rt_values_ex(self, comp_mask: int = _RAW_CLOCK) -> tuple[int, int]:
        """The clock of completion timestamps now: whole seconds and nanoseconds; ``EINVAL`` for others."""
        self._require_open()
        if comp_mask != _RAW_CLOCK:
            raise PyverbsRDMAError(
                f"Failed to query real time values: comp_mask = {int(comp_mask):#x}: no such values",
                errno.EINVAL,
            )
        return divmod(time.monotonic_ns(), 1_000_000_000)

    def query_comp_cntr_caps(self) -> "CompCntrCaps":
        """Completion counters: none."""
        self._require_open()
        return CompCntrCaps({})

    def query_port_speed(self, port_num: int) -> int:
        """Speed of a port in units of 100 Mbit/s."""
        port = self.query_port(port_num)
        lanes = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}.get(port.active_width, 1)
        return lanes * _LANE_SPEEDS.get(port.active_speed_ex or port.active_speed, 0)

    @property
    def context(self) -> "Context":
        """The context itself."""
        self._require_open()
        return self

    def get_async_event(self, timeout_s: float | None = None) -> "AsyncEvent":
        """Wait for the next asynchronous event; it must be acknowledged with `AsyncEvent.ack`.

        Without ``timeout_s`` the call waits for ever; with it, `PyverbsRDMAError` (``ETIMEDOUT``) ends the
        wait, and (``EAGAIN``) where `async_fd` is non-blocking and there is none.
        """
        blocking = self.driver.would_block()
        with translated("Failed to get an asynchronous event"):
            found = self.driver.next_event(timeout_s if blocking else 0)
        if found is None:
            raise PyverbsRDMAError("No asynchronous event", errno.ETIMEDOUT if blocking else errno.EAGAIN)
        kind, number = found
        return AsyncEvent(kind, number)

    @property
    def async_fd(self) -> int:
        """A descriptor that is readable while events wait for `get_async_event`, as `CompChannel.fd`; closed
        with the context."""
        with translated("Failed to make a descriptor"):
            return self.driver.event_descriptor().fileno()

    @property
    def cmd_fd(self) -> int:
        """A descriptor that stands for the open device, which has no device file: it can be polled, passed
        on and compared (``os.fstat``), and nothing is to be read from it.  A duplicate opens the device again
        (``Context(cmd_fd=…)``, `sharing`).  Closed with the context."""
        if self._cmd_fd is not None:
            self._require_open()
            return self._cmd_fd
        with translated("Failed to make a descriptor"):
            descriptor = self.driver.command_descriptor()
        remember(self, descriptor)
        return descriptor

    def _is_roce(self, port_num: int) -> bool:
        from softhca.verbs.libibverbs_enums import IBV_LINK_LAYER_ETHERNET  # all numbers: not for each start

        return self.query_port(port_num).link_layer == IBV_LINK_LAYER_ETHERNET

    def __str__(self) -> str:
        return f"Context {self.name}"


class GIDEntry(ReadOnly):
    """One entry of a GID table; the halves of the GID are numbers read from big-endian memory."""

    __slots__ = (
        "gid_index",
        "gid_interface_id",
        "gid_subnet_prefix",
        "gid_type",
        "ndev_ifindex",
        "port_num",
    )
    gid_subnet_prefix: int
    gid_interface_id: int
    gid_index: int
    port_num: int
    gid_type: int
    ndev_ifindex: int

    def __init__(
        self,
        subnet_prefix: int = 0,
        interface_id: int = 0,
        gid_index: int = 0,
        port_num: int = 0,
        gid_type: int = 0,
        ndev_ifindex: int = 0,
    ) -> None:
        self._make(
            {
                "gid_subnet_prefix": UINT64(subnet_prefix),
                "gid_interface_id": UINT64(interface_id),
                "gid_index": UINT32(gid_index),
                "port_num": UINT32(port_num),
                "gid_type": UINT32(gid_type),
                "ndev_ifindex": UINT32(ndev_ifindex),
            }
        )

    def gid_str(self) -> str:
        """The GID in eight words."""
        return gid_str(self.gid_subnet_prefix, self.gid_interface_id)

    def __str__(self) -> str:
        return lines(
            {
                "GID": self.gid_str(),
                "GID Index": self.gid_index,
                "Port number": self.port_num,
                "GID type": translate_gid_type(self.gid_type),
                "Ndev ifindex": self.ndev_ifindex,
            },
            24,
        )


class AsyncEvent(PyverbsObject):
    """An asynchronous event.

    ``event_type`` is an ``ibv_event_type``; ``element`` is the number of the QP, CQ, SRQ or port that it
    concerns.
    """

    __slots__ = ("_acknowledged", "_element", "_event_type")
    element: int = read_only("_element", "The number of what the event concerns.")

    def __init__(self, event_type: int = 0, element: int = 0) -> None:
        self._event_type = event_type
        self._element = element
        self._acknowledged = False

    @property
    def event_type(self) -> int:
        """What happened: an ``ibv_event_type``."""
        return self._event_type

    def ack(self) -> None:
        """Acknowledge the event, once."""
        if self._acknowledged:
            raise PyverbsUserError("The event was acknowledged before")
        self._acknowledged = True

    def __str__(self) -> str:
        return lines({"Event Type": translate_event_type(self._event_type), "Element": self.element}, 24)


class FdArr(PyverbsObject):
    """A list of descriptors."""

    __slots__ = ("arr",)

    def __init__(self, arr: list[int] | None = None) -> None:
        self.arr = list(arr or ())

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.arr)

    def close(self) -> None:
        """Forget them; whoever opened them closes them."""
        self.arr.clear()

    def __str__(self) -> str:
        return lines({"Count": self.count, "Descriptors": self.arr}, 24)


def __getattr__(name: str) -> Any:
    if name not in ("AllocDmAttr", "DM"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from softhca.verbs import device_memory  # it stands on this module

    return getattr(device_memory, name)
