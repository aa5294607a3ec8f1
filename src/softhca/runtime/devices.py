"""The devices of this process: what ``SOFTHCA_DEVICES`` and ``SOFTHCA_ADAPTER`` say, opened when first
asked for.

``SOFTHCA_ADAPTER=embedded`` (default) runs a device's adapter in this process, ``process`` in one of its
own, which serves all processes of this user that open the device by the same addresses.  Where such a process
has the addresses of a device that should be embedded, it serves this process, too.  A device of kind ``unix``
is always another process's.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import threading
from dataclasses import replace

from softhca.driver import registry
from softhca.driver.channels import HostChannel
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError, refusal
from softhca.runtime import fork
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.assembly import counts
from softhca.runtime.embedded import EmbeddedAdapter, EngineChannel
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import DeviceSpecification, DeviceSpecificationError, parse

MODES = ("embedded", "process")

HOW_TO_SHARE = "with SOFTHCA_ADAPTER=process processes share a device"

JOIN_ATTEMPTS = 10
"""How many adapter processes may end while one that has found them waits to be served."""


class Device:
    """One device by name: how it was asked for, and the adapter behind it while somebody has it open.

    An address that was chosen at the first opening (first free loopback) is kept for the life of the process.
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
        with self._lock:
            try:
                channel = self._attach()
            except DeviceSpecificationError as error:
                raise DriverError(errno.EINVAL, str(error)) from None
            except OSError as error:
                raise refusal(error) from None
            try:
                driver = DeviceDriver(self.specification.name, channel)
            except BaseException:
                channel.close()
                raise
            channel.on_closed = self._forget
            self._channels.append(channel)
            return driver

    def _forget(self, channel: HostChannel) -> None:
        """A channel is closed."""
        with contextlib.suppress(ValueError):  # not known any more
            self._channels.remove(channel)  # type: ignore[arg-type]

    def _attach(self) -> EngineChannel | ProcessChannel:
        if self.mode == "process":
            return self._attach_process()
        try:
            return self._attach_engine()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not all(self.specification.places):
                raise
            channel = self._join()
            if channel is None:
                raise OSError(error.errno, f"{error.strerror}; {HOW_TO_SHARE}") from None
            return channel

    def _join(self) -> ProcessChannel | None:
        """Attach to the adapter process that has the addresses; None where there is none."""
        self.process = AdapterProcess(self.specification, starts=False)
        try:
            return self._attach_process()
        except ConnectionRefusedError:
            self.process = None
            return None

    def _attach_engine(self) -> EngineChannel:
        while True:
            fresh = self.engine is None or not self.engine.alive
            if self.engine is None or fresh:
                if self.engine is not None:
                    self.engine.close()  # one that has failed, or is about to end, still has the address
                self.engine = EmbeddedAdapter(self.specification)
                self._keep_places([link.address for link in self.engine.links])
            try:
                channel = self.engine.attach()
            except BaseException:
                if fresh:
                    self.engine.close()
                raise
            if channel is not None:
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
        if self.engine is None or not self.engine.alive:
            return {}
        with self.engine.loop.lock:
            return counts(self.engine.adapter)

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
        """Nothing is open here yet; a chosen address is the parent's, an adapter process can be shared."""
        self._lock.release()
        self._channels = []
        self.engine = None
        self.specification = self._asked
        process, self.process = self.process, None
        if process is not None:
            process.forget()
            if self.mode == "process" and process.path and not all(self._asked.places):
                self.process = AdapterProcess(replace(self._asked, kind="unix", place=process.path))
        fork.watch(self)


_devices: dict[str, Device] = {}


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


def find(name: str) -> Device:
    """The device of this name; KeyError when there is none."""
    return _devices[name]


def close_all() -> None:
    """Close every device: engines, threads, processes, descriptors."""
    for device in list(_devices.values()):
        device.close()


# Before the interpreter clears modules; threads that wait return first.
atexit.register(close_all)
