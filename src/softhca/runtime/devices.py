"""The devices of this process: what ``SOFTHCA_DEVICES`` and ``SOFTHCA_ADAPTER`` say, opened when first
asked for.

``SOFTHCA_ADAPTER=embedded`` (default) runs a device's adapter in this process, ``process`` in one of its
own.  Either serves all processes of this user that open the device by the same addresses: whoever is the
first has the name by which the others find it (`listening_name`), unless the device says ``share=0``.  A
device of kind ``unix`` is always another process's.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import time
from dataclasses import replace

from softhca.driver import registry
from softhca.driver.channels import HostChannel
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError, refusal
from softhca.machine import deferred_signals
from softhca.machine.locked_memory import maps_locked
from softhca.machine.signals import suppressed
from softhca.runtime import fork, listening_name
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.assembly import counts, gid_of
from softhca.runtime.embedded import EmbeddedAdapter, EngineChannel
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import (
    ALL_ADDRESSES,
    DeviceSpecification,
    DeviceSpecificationError,
    parse,
)

MODES = ("embedded", "process")

NOT_SHARED = "its user is no softhca program of this user that shares it, or has it among other addresses"

JOIN_ATTEMPTS = 10
"""How many adapters may end while one that has found them waits to be served."""

LOCKED = (
    "this process locks all that it maps (mlockall with MCL_FUTURE), and a device's memory is many gigabytes "
    "of addresses: add MCL_ONFAULT, which locks what is touched"
)
LINGER_S = 5.0
"""How long a process that ends goes on for others that use an adapter which is embedded in it."""

_log = logging.getLogger("softhca.runtime")


class Device:
    """One device by name: how it was asked for, and the adapter behind it while somebody has it open.

    An address that was chosen at the first opening (first free loopback) is kept for the life of the process,
    and by forked children.
    """

    def __init__(self, specification: DeviceSpecification, mode: str = "embedded") -> None:
        self.specification = specification
        self._asked = specification
        self.mode = "process" if specification.kind == "unix" else mode
        self.engine: EmbeddedAdapter | None = None
        self.process: AdapterProcess | None = None
        self._channels: list[EngineChannel | ProcessChannel] = []
        self._lock = threading.Lock()
        fork.watch(self)

    def open(self) -> DeviceDriver:
        """Open it once more.  DriverError says why not."""
        paused = deferred_signals.pause()
        with self._lock:  # whoever has it may wait for an adapter process
            deferred_signals.go_on(paused)
            with deferred_signals.section():
                return self._open()

    def _open(self) -> DeviceDriver:
        """`open`, by one thread at a time."""
        try:
            channel = self._attach()
        except DeviceSpecificationError as error:
            raise DriverError(errno.EINVAL, str(error)) from None
        except OSError as error:
            raise refusal(error) from None
        try:
            driver = DeviceDriver(self.specification.name, channel)
            self._check_addresses(driver)
        except BaseException:
            channel.close()
            raise
        channel.on_closed = self._forget
        self._channels.append(channel)
        return driver

    def _check_addresses(self, driver: DeviceDriver) -> None:
        """DriverError EADDRINUSE where the adapter, which another program may have begun with other options,
        is without an address that is named here.
        """
        named = self.specification.addresses
        if not named or named == ALL_ADDRESSES:
            return
        length = driver.query_port(1)["gid_tbl_len"]
        has = {driver.query_gid(1, index) for index in range(length)}
        without = [each for each in named if gid_of(each) not in has]
        if without:
            text = f"{driver.name}: the adapter that has its address is without {'+'.join(without)}"
            raise DriverError(errno.EADDRINUSE, text)

    def _forget(self, channel: HostChannel) -> None:
        """A channel is closed."""
        with contextlib.suppress(ValueError):  # not known any more
            self._channels.remove(channel)  # type: ignore[arg-type]

    def _attach(self) -> EngineChannel | ProcessChannel:
        if maps_locked():
            raise OSError(errno.ENOMEM, f"{self.specification.name}: {LOCKED}")
        if self.mode == "process":
            return self._attach_process()
        for _ in range(JOIN_ATTEMPTS):
            fresh = self.engine is None or not self.engine.alive
            if fresh:
                channel = self._join_or_embed()
                if channel is not None:
                    return channel
            if self.engine is not None:
                try:
                    attached = self.engine.attach()
                except BaseException:
                    if fresh:
                        self.engine.close()
                    raise
                if attached is not None:
                    return attached
        raise OSError(errno.ECONNRESET, f"{self.specification.name}: one adapter after the other has ended")

    def _join_or_embed(self) -> ProcessChannel | None:
        """Attach to the adapter that has the addresses, in whatever process; where there is none, start one
        here (None), or look again (None without an engine).
        """
        if self.engine is not None:
            self.engine.close()  # one that has failed, or is about to end, still has the address
            self.engine = None
        name, bound = self._take_name()
        if name and bound is None:
            with suppressed(PermissionError, TimeoutError):
                return self._join()
            name = ""  # somebody else's, who does not keep us from the address
        try:
            engine = EmbeddedAdapter(self.specification, name, bound)
        except BaseException as error:
            if bound is not None:
                bound.close()
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise OSError(error.errno, f"{error.strerror}; {NOT_SHARED}") from None
            raise
        self.engine = engine
        _linger_as_child()
        self._keep_places([link.address for link in engine.links])
        if not name:
            self._share_chosen(engine)
        return None

    def _take_name(self) -> tuple[str, socket.socket | None]:
        """The name at which others find an adapter at this device's addresses, and a socket that has it now;
        None where somebody has it already, empty where there is none.
        """
        if self.specification.share:
            with contextlib.suppress(OSError):  # there are no abstract names here
                name = listening_name.name_of(self.specification)
                return name, listening_name.take(name) if name else None
        return "", None

    def _share_chosen(self, engine: EmbeddedAdapter) -> None:
        """Have others, forked children above all, find an adapter whose address has just been chosen."""
        if not all(self._asked.places):
            name, bound = self._take_name()
            if bound is not None:
                engine.listen(name, bound)

    def _join(self) -> ProcessChannel | None:
        """Attach to the adapter that has the addresses; None where it has ended meanwhile."""
        process = AdapterProcess(self.specification, starts=False)
        try:
            channel = ProcessChannel(process)
        except (ConnectionRefusedError, ConnectionResetError):
            return None
        self.process = process
        return channel

    def _attach_process(self) -> ProcessChannel:
        if self.process is None:
            self.process = AdapterProcess(self.specification)
        attempts = JOIN_ATTEMPTS
        while True:
            try:
                channel = ProcessChannel(self.process)
                break
            except ConnectionResetError:
                attempts -= 1
                if not self.process.joined or not attempts:
                    raise
                # that one has ended, with its last user, before it took this one
        self._keep_places(self.process.place.split("+"))
        return channel

    def _keep_places(self, addresses: list[str]) -> None:
        wanted = self.specification
        if wanted.kind == "udp" and not all(wanted.places) and all(addresses):
            first, *further = (
                place or address for place, address in zip(wanted.places, addresses, strict=True)
            )
            self.specification = replace(wanted, place=first, further_places=tuple(further))
            if self.process is not None:
                self.process.specification = self.specification

    def resources(self) -> dict[str, int]:
        """How many resources of each kind the adapter holds, of all hosts; empty when it is not open."""
        for channel in self._channels:
            if isinstance(channel, ProcessChannel) and channel.alive:
                return dict(channel.resources()["counts"])
        engine = self.engine  # once, here and below: another thread may close the device
        if engine is None or not engine.alive:
            return {}
        with engine.loop.lock:
            return counts(engine.adapter)

    @property
    def meeting_place(self) -> str:
        """The name of the socket at which other processes reach its adapter; empty: it is not open, or they
        cannot."""
        engine, process = self.engine, self.process
        if engine is not None and engine.alive:
            return engine.meeting_place
        return process.path if process is not None and self.is_open else ""

    @property
    def is_open(self) -> bool:
        """Whether this process has it open."""
        return bool(self._channels)

    @property
    def is_used_elsewhere(self) -> bool:
        """Whether other processes use an adapter that is embedded here."""
        engine = self.engine
        return engine is not None and engine.alive and not engine.linger(0)

    def leave(self, until_s: float) -> None:
        """Close what this process has open of it; an adapter that is embedded here goes on for others, until
        ``until_s`` of the monotonic clock at most.
        """
        engine = self.engine
        for channel in list(self._channels):
            channel.close()
        if engine is not None and not engine.linger(max(until_s - time.monotonic(), 0)):
            _log.warning("%s ends with this process, and other processes use it", self.specification.name)

    def close(self) -> None:
        """Close what is still open of it."""
        channels, self._channels = self._channels, []
        for channel in channels:
            channel.close()
        if self.engine is not None:
            self.engine.close()
            self.engine = None
        if self.process is not None:
            self.process.forget()  # where it goes on it is for others
        fork.unwatch(self)

    # fork.ForkAware

    fork_rank = 0

    def before_fork(self) -> None:
        """No device is being opened while the process is copied."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Nothing is open here yet; what has the address in the parent, or for it, can be shared."""
        self._lock.release()
        self._channels = []
        if self.engine is None or self.engine.clients is None:
            self.specification = self._asked
        self.engine = None
        process, self.process = self.process, None
        if process is not None:
            process.forget()
            if self.mode == "process" and process.path and not all(self._asked.places):
                self.process = AdapterProcess(replace(self._asked, kind="unix", place=process.path))
        fork.watch(self)


_devices: dict[str, Device] = {}
_joined: dict[str, Device] = {}
"""Devices that are known by the socket of their adapter alone (`join`)."""


def load() -> None:
    """Fill the registry from the environment; called by the registry when it is first asked.

    DriverError EINVAL, in one line that names the bad word.
    """
    add(os.environ.get("SOFTHCA_DEVICES", ""), os.environ.get("SOFTHCA_ADAPTER", "") or "embedded")


def add(text: str, mode: str = "embedded") -> None:
    """Make the devices that ``text`` names (as ``SOFTHCA_DEVICES`` does) known; a known name is replaced.

    DriverError EINVAL, in one line that names the bad word; nothing has changed then.
    """
    try:
        specifications = parse(text)
    except DeviceSpecificationError as error:
        raise DriverError(errno.EINVAL, str(error)) from None
    if mode not in MODES:
        raise DriverError(errno.EINVAL, f"SOFTHCA_ADAPTER: {mode!r} is neither 'embedded' nor 'process'")
    for specification in specifications:
        remove(specification.name)
        _devices[specification.name] = device = Device(specification, mode)
        registry.register(specification.name, device.open)


def remove(name: str) -> None:
    """Close a device and forget it."""
    registry.unregister(name)
    device = _devices.pop(name, None)
    if device is not None:
        device.close()


def join(name: str, place: str) -> DeviceDriver:
    """Open the device whose adapter listens at ``place``, an abstract name or a path; ``name`` is what it is
    called here.  DriverError where nobody of this user listens there.
    """
    for device in (*_devices.values(), *_joined.values()):
        if device.meeting_place == place:
            return device.open()
    for known, device in list(_joined.items()):
        if not device.is_open:
            _joined.pop(known, None)
    device = Device(DeviceSpecification(name, "unix", place))
    driver = device.open()
    _joined[place] = device
    return driver


def find(name: str) -> Device:
    """The device of this name; KeyError when there is none."""
    return _devices[name]


def close_all() -> None:
    """Close every device: engines, threads, processes, descriptors."""
    linger()
    for device in (*_devices.values(), *_joined.values()):
        device.close()


def linger(limit_s: float = LINGER_S) -> None:
    """This process is about to end: give others that use its embedded adapters time to end as well, up to
    ``limit_s`` for all.  Those that stay are told that their device has failed.
    """
    used = [device for device in _devices.values() if device.is_used_elsewhere]
    if not used:
        return
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing is not None else ():
        if not child.daemon:
            child.join()  # this process will not end before it in any case
    until_s = time.monotonic() + limit_s
    for device in used:
        device.leave(until_s)


def _linger_as_child() -> None:
    """A child of `multiprocessing` ends without `atexit`: linger at its end."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, linger, exitpriority=-1)  # behind the children's end


# Before the interpreter clears modules; threads that wait return first.
atexit.register(close_all)
