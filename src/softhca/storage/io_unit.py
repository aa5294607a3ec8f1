"""An I/O unit: a target's node, with one controller whose logical units are disks.

It is found by device management, connected to by the communication manager, and spoken to by SRP, on every
port that it is attached by.  All of that is done by `IoUnit.serve`, which takes what has come and never
waits; `IoUnit.start` has a thread for each adapter that calls it.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from softhca.driver import services
from softhca.driver.agents import AgentHandle, MadArrival
from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_REJECTED,
    CM_REQUEST,
    CM_UNREACHABLE,
    CmChannel,
    CmEvent,
)
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.management.cm.messages import REJ_CONSUMER_DEFINED, REJ_INVALID_TRANSPORT
from softhca.management.constants import CLASS_DEV_MGT, METHOD_GET, METHOD_SET
from softhca.management.device_agent import DeviceManagementAgent, ManagedController
from softhca.management.device_attributes import IoUnitInfo
from softhca.management.ip_service import HEADER_BYTES, TCP, port_of, service_id
from softhca.management.mad import Address, Mad
from softhca.queues.control_fields import QPT_RC
from softhca.storage import srp
from softhca.storage.controller import Controller
from softhca.storage.descriptors import MOST_RANGES, RANGE_BYTES, TABLE_HEAD_BYTES
from softhca.storage.disk import Disk
from softhca.storage.session import TargetSession
from softhca.storage.target_channel import SEND_DEPTH, TargetChannel
from softhca.wire.errors import WireError

MESSAGES_A_TURN = 256
_ENDED = frozenset({CM_DISCONNECT_REQUEST, CM_DISCONNECTED, CM_REJECTED, CM_UNREACHABLE})


@dataclass(frozen=True)
class UnitConfig:
    """What a unit promises; ValueError for what cannot be.

    ``guid`` of the I/O controller and ``extension`` together name the target port, and ``service_id`` is what
    connections are asked for with (0: the GUID); ``port`` is a port number by which RDMA CM asks (0: none).
    An initiator may have ``request_limit`` commands under way
    in each of its channels, of which there are ``max_channels`` in all, and move ``max_transfer_bytes`` with
    each.  ``max_message_bytes``: the longest message that an initiator may ask to send.
    """

    guid: int
    extension: int = 0
    service_id: int = 0
    port: int = 0
    request_limit: int = 32
    max_transfer_bytes: int = 256 << 10
    max_message_bytes: int = 1024
    max_channels: int = 16
    name: str = "softhca block storage"

    def __post_init__(self) -> None:
        longest = srp.Command.LENGTH_BYTES + 252 + 2 * (TABLE_HEAD_BYTES + MOST_RANGES * RANGE_BYTES)
        for name, least, most in (
            ("guid", 1, (1 << 64) - 1),
            ("extension", 0, (1 << 64) - 1),
            ("service_id", 0, (1 << 64) - 1),
            ("port", 0, 0xFFFF),
            ("request_limit", 1, 1024),
            ("max_transfer_bytes", 4096, 16 << 20),
            ("max_message_bytes", srp.LoginRequest.LENGTH_BYTES, longest),
            ("max_channels", 1, 1024),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} {getattr(self, name)}: expected {least}…{most}")

    @property
    def service(self) -> int:
        """The service ID."""
        return self.service_id or self.guid

    @property
    def service_ids(self) -> list[int]:
        """All that the unit listens to."""
        return [self.service, service_id(TCP, self.port)] if self.port else [self.service]

    @property
    def target_port(self) -> bytes:
        """The target port's identifier."""
        return self.extension.to_bytes(8, "big") + self.guid.to_bytes(8, "big")


class _Attachment:
    """A port by which the unit is attached: its agent, its listener, its channels by connection."""

    def __init__(self, unit: IoUnit, device: DeviceDriver, port: int) -> None:
        config = unit.config
        self.device = device
        self.agent: AgentHandle = device.register_agent(
            port, CLASS_DEV_MGT, 1, (METHOD_GET, METHOD_SET), MESSAGES_A_TURN
        )
        self.cm: CmChannel = device.open_connections(port)
        for service in config.service_ids:
            self.cm.listen(service, config.max_channels)
        self.pd = device.alloc_pd()
        self.cq = device.create_cq(config.max_channels * (config.request_limit + 2 + SEND_DEPTH))
        self.by_connection: dict[int, TargetChannel] = {}
        self.by_queue_pair: dict[int, TargetChannel] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing has come."""
        return self.cm.idle and self.agent.idle and not self.cq.waiting()

    def close(self) -> None:
        """Give everything back."""
        if not self.device.alive:
            return
        self.cm.close()
        self.agent.unregister()
        self.cq.destroy()
        self.device.dealloc_pd(self.pd)


class IoUnit:
    """A unit attached by ``ports``, each an open device and a port's number, whose logical units are
    ``disks``, from 0 on.  They stay the caller's.

    ``channels`` are those that stand now; ``seed`` decides their first PSNs.  Any thread may call any method.
    DriverError where a port's device management or the service ID are taken.
    """

    def __init__(
        self,
        ports: Sequence[tuple[DeviceDriver, int]],
        disks: Sequence[Disk],
        config: UnitConfig,
        seed: int | None = None,
    ) -> None:
        self.config = config
        self._dice = random.SystemRandom() if seed is None else random.Random(seed)
        self.disk_controller = Controller(config.guid, disks, config.max_transfer_bytes)
        self._agent = DeviceManagementAgent(self)
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._attachments: list[_Attachment] = []
        try:
            for device, port in ports:
                self._attachments.append(_Attachment(self, device, port))
        except DriverError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def channels(self) -> list[TargetChannel]:
        """The channels of all ports."""
        return [each for place in self._attachments for each in place.by_connection.values()]

    # device management

    def unit_info(self) -> IoUnitInfo:
        """One slot, with the controller."""
        return IoUnitInfo.of(1, [True])

    def controller(self, slot: int) -> ManagedController | None:
        """The controller, in slot 1."""
        return self.disk_controller.managed(self.config) if slot == 1 else None

    # serving

    def serve(self, device: DeviceDriver | None = None) -> bool:
        """Take what has come, of one device or of all, and answer it; whether there was anything.  A device
        that has died loses its channels."""
        worked = False
        with self._lock:
            for place in self._attachments:
                if not self._closed and device in (None, place.device):
                    worked |= self._serve(place)
        return worked

    def _serve(self, place: _Attachment) -> bool:
        if not place.device.alive:
            lost = list(place.by_connection)
            for number in lost:
                self._drop(place, number)
            self._settle()
            return bool(lost)
        place.device.events.dispatch()
        worked = False
        while not place.agent.idle and (arrival := place.agent.receive(0)) is not None:
            worked = True
            self._managed(place, arrival)
        while not place.cm.idle and (event := place.cm.receive(0)) is not None:
            worked = True
            self._on_cm_event(place, event)
        ready: dict[TargetChannel, None] = {}
        for completion in place.cq.poll(MESSAGES_A_TURN):
            worked = True
            channel = place.by_queue_pair.get(completion.qp_num)
            if channel is not None:
                channel.completed(completion)
                ready[channel] = None
        for channel in ready:
            channel.turn()
        if worked:
            self._settle()
        return worked

    def _settle(self) -> None:
        """Let go of channels that have ended, and post what a reset, or the end of another channel, has left
        to the others.
        """
        has_dropped = True
        while has_dropped:
            has_dropped = False
            for place in self._attachments:
                for number, channel in list(place.by_connection.items()):
                    if channel.session.has_work:
                        channel.turn()
                    if channel.failed:
                        self._drop(place, number)
                        has_dropped = True

    def _managed(self, place: _Attachment, arrival: MadArrival) -> None:
        request = Mad.decode(arrival.mad)
        answer = self._agent.answer(request, Address(arrival.source.qpn))
        if answer is not None:
            with contextlib.suppress(DriverError):  # too many wait: as if it had been lost
                place.agent.send(answer.encode(), arrival.source)

    # channels

    def _on_cm_event(self, place: _Attachment, event: CmEvent) -> None:
        if event.kind == CM_REQUEST:
            try:
                self._asked(place, event)
            except DriverError:  # the request is over, or there is no room for a channel
                with contextlib.suppress(DriverError):
                    self._reject(place, event.id, srp.REJ_NO_RESOURCES)
        elif event.kind in _ENDED:
            if event.kind == CM_DISCONNECT_REQUEST:
                with contextlib.suppress(DriverError):
                    place.cm.disconnect(event.id)
            if event.id in place.by_connection:
                self._drop(place, event.id)

    def _reject(self, place: _Attachment, number: int, reason: int, tag: int = 0) -> None:
        formats = srp.DIRECT_BUFFERS | srp.INDIRECT_BUFFERS
        message = srp.LoginReject(reason=reason, tag=tag, supported_formats=formats)
        place.cm.reject(number, REJ_CONSUMER_DEFINED, private_data=message.encode())

    def _asked(self, place: _Attachment, event: CmEvent) -> None:
        """A request for a connection: a login."""
        if event.queue_pair.qp_type != QPT_RC:
            place.cm.reject(event.id, REJ_INVALID_TRANSPORT)
            return
        try:
            login = _login_in(event)
        except WireError:
            self._reject(place, event.id, srp.REJ_UNABLE)
            return
        reason = self._refusal(login)
        if not event.queue_pair.responder_resources:
            reason = srp.REJ_UNABLE  # its memory cannot be read
        if reason:
            self._reject(place, event.id, reason, login.tag)
            return
        result = srp.NO_CHANNEL
        for other, number, channel in self._of_initiator(login.initiator_port):
            if login.multi_channel_action == srp.SINGLE_CHANNEL:
                self._drop(other, number)
                result = srp.TERMINATED
            else:
                result = srp.MAINTAINED if not channel.failed else result
        if len(self.channels) >= self.config.max_channels:
            for channel in self.channels:
                channel.probe()
            self._reject(place, event.id, srp.REJ_CHANNEL_LIMIT, login.tag)
            return
        self._admit(place, event, login, result)

    def _refusal(self, login: srp.LoginRequest) -> int:
        """Why a login is rejected; 0: it is not."""
        if login.type != srp.LOGIN_REQ:
            return srp.REJ_UNABLE
        if login.target_port != self.config.target_port:
            return srp.REJ_NO_SUCH_PORT
        if login.max_it_bytes > self.config.max_message_bytes:
            return srp.REJ_IU_TOO_LONG
        if login.max_it_bytes < srp.LoginRequest.LENGTH_BYTES:
            return srp.REJ_UNABLE
        if login.required_formats & ~(srp.DIRECT_BUFFERS | srp.INDIRECT_BUFFERS):
            return srp.REJ_FORMAT
        if login.multi_channel_action not in (srp.SINGLE_CHANNEL, srp.MULTI_CHANNEL):
            return srp.REJ_MULTI_CHANNEL
        return 0

    def _of_initiator(self, port: bytes) -> list[tuple[_Attachment, int, TargetChannel]]:
        return [
            (place, number, channel)
            for place in self._attachments
            for number, channel in place.by_connection.items()
            if channel.session.initiator == port
        ]

    def _admit(self, place: _Attachment, event: CmEvent, login: srp.LoginRequest, result: int) -> None:
        config = self.config
        channel = TargetChannel(
            place.device, place.pd, place.cq, config.request_limit, config.max_transfer_bytes,
            login.max_it_bytes, self._dice.getrandbits(24),
            lambda buffer: TargetSession(
                self.disk_controller, login.initiator_port, config.request_limit,
                config.max_transfer_bytes, buffer,
            ),
        )  # fmt: skip
        response = srp.LoginResponse(
            request_limit_delta=config.request_limit,
            tag=login.tag,
            max_it_bytes=login.max_it_bytes,
            max_ti_bytes=login.max_it_bytes,
            supported_formats=srp.DIRECT_BUFFERS | srp.INDIRECT_BUFFERS,
            multi_channel_result=result,
        )
        try:
            services.accept(place.device, place.cm, event, channel.qp, channel.end)
            channel.begin()
            place.cm.reply(event.id, channel.end, response.encode())
        except DriverError:
            channel.close()
            raise
        place.by_connection[event.id] = channel
        place.by_queue_pair[channel.qp.number] = channel
        self.disk_controller.add(channel.session)

    def end_channel(self, channel: TargetChannel) -> None:
        """End a channel; its host is told."""
        with self._lock:
            for place in self._attachments:
                for number in [key for key, each in place.by_connection.items() if each is channel]:
                    self._drop(place, number)
            self._settle()

    def _drop(self, place: _Attachment, number: int) -> None:
        """A channel is over: its queue pair goes, and all its tasks with it."""
        channel = place.by_connection.pop(number)
        place.by_queue_pair.pop(channel.qp.number, None)
        self.disk_controller.remove(channel.session)
        channel.close()
        with contextlib.suppress(DriverError):
            place.cm.destroy(number)

    # threads

    def start(self) -> None:
        """Have a thread for each adapter that serves, until `close`."""
        devices = list(dict.fromkeys(place.device for place in self._attachments))
        for device in devices:
            thread = threading.Thread(target=self._run, args=(device,), name="softhca-io-unit", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, device: DeviceDriver) -> None:
        places = [place for place in self._attachments if place.device is device]

        def something() -> bool:
            return self._closed or any(not place.idle for place in places)

        with contextlib.suppress(DriverError):  # the device is closed, or its adapter is gone
            while not self._closed:
                for place in places:
                    place.cq.arm()
                device.wait_for(something)
                while self.serve(device):
                    pass
        self.serve(device)

    def close(self) -> None:
        """End all channels, which their hosts are told, and all threads; may be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for place in self._attachments:
            if place.device.alive:
                place.device.wake_waiters()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        with self._lock:
            for place in self._attachments:
                for number in list(place.by_connection):
                    self._drop(place, number)
                with contextlib.suppress(DriverError):
                    place.close()


def _login_in(request: CmEvent) -> srp.LoginRequest:
    """The login in a request's private data, behind addresses where RDMA CM asks.  WireError: cut short."""
    if port_of(request.service_id) is None:
        return srp.LoginRequest.decode(request.private_data)
    return srp.ShortLoginRequest.decode(request.private_data, HEADER_BYTES).long
