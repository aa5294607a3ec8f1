"""The side that is asked: streams that are ready before the TCP connection that they belong to is accepted.

A request names the TCP address of who asks.  It is answered by the hub's thread, without the application, as
a kernel answers; `claim` gives the stream to whoever accepts the TCP connection from that address.  A stream
that nobody claims within `UNCLAIMED_S` is given up when the next request comes, and there are `MOST` at most.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.sockets import devices
from softhca.sockets.attending import Attendant, attendant_of
from softhca.sockets.finding import Sign
from softhca.sockets.hub import HUB, before_fork
from softhca.sockets.protocol import Offer, ProtocolError, host_of
from softhca.sockets.settings import Settings
from softhca.sockets.stream import Stream
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST, RAI_PASSIVE
from softhca.verbs.pyverbs_error import PyverbsError

MOST = 256
UNCLAIMED_S = 30.0

Key = tuple[bytes, int]


class Listener:
    """Serves ``port`` over RDMA until `close`.  PyverbsError, OSError where that cannot be: then the port is
    served by TCP alone.
    """

    def __init__(self, port: int, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._ready: dict[Key, tuple[float, Stream]] = {}
        self._closed = False
        self._channel = CMEventChannel()
        self._listener: CMID | None = None
        self._sign: Sign | None = None
        self._fd = -1
        self._attendants: list[Attendant] = []
        try:
            self._listener = CMID(creator=self._channel)
            where = AddrInfo(src="::", src_service=str(port), flags=RAI_PASSIVE | RAI_NUMERICHOST)
            self._listener.bind_addr(where)
            self._listener.listen(MOST)
            places = _places()
            self._attendants = [attendant_of(each.device) for each in places]
            self._sign = Sign(port, [each.gid for each in places])
            self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            HUB.watch(self._fd, self._take)
            self._channel.channel.on_post = self._posted
            for each in self._attendants:
                each.start()
            self._posted()
            before_fork.append(self.close)
        except BaseException:
            self.close()
            raise

    def _posted(self) -> None:
        """An event waits: have the hub take it."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)
        for each in self._attendants:
            each.hand_over()

    def _take(self) -> None:
        """The hub: take all events that there are."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._fd >= 0:
                os.eventfd_read(self._fd)
        while not self._closed:
            event = self._channel.channel.next_event(0)
            if event is None:
                return
            if event.kind == events.CONNECT_REQUEST:
                self._requested(CMEvent.of(event))

    def _requested(self, event: CMEvent) -> None:
        cmid = CMID(creator=event, listen_id=self._listener)
        stream: Stream | None = None
        try:
            peer = Offer.decode(event.private_data)
            key = host_of(event.private_data), peer.port
            self._give_up_old()
            if len(self._ready) >= MOST or self._closed:
                raise ProtocolError("too many streams wait to be accepted")
            devices.keep(cmid)
            stream = Stream(cmid, self._settings)
            answer = stream.offer().encode()
            parameters = ConnParam(resources=1, depth=1, retry=7, rnr_retry=7, data_len=len(answer))
            parameters.set_private_data(answer)
            stream.begin(peer)
            with self._lock:
                former = self._ready.pop(key, None)
                self._ready[key] = time.monotonic(), stream
            cmid.accept(parameters)
        except (PyverbsError, DriverError, ProtocolError, OSError):
            with contextlib.suppress(PyverbsError, DriverError):
                cmid.reject()
            if stream is not None:
                stream.destroy()
            else:
                cmid.close()
        else:
            if former is not None:
                former[1].destroy()

    def _give_up_old(self) -> None:
        limit = time.monotonic() - UNCLAIMED_S
        with self._lock:
            old = [key for key, (since, _) in self._ready.items() if since < limit]
            streams = [self._ready.pop(key)[1] for key in old]
        for stream in streams:
            stream.destroy()

    def claim(self, host: bytes, port: int) -> Stream | None:
        """The stream that belongs to the TCP connection from there; None: it has none."""
        with self._lock:
            found = self._ready.pop((host, port), None)
        return None if found is None else found[1]

    def close(self) -> None:
        """Serve no more; what nobody has claimed is given up.  May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = [stream for _, stream in self._ready.values()]
            self._ready.clear()
        with contextlib.suppress(ValueError):
            before_fork.remove(self.close)
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            HUB.forget(fd)
            os.close(fd)
        if self._sign is not None:
            self._sign.close()
        for stream in waiting:
            stream.destroy()
        with contextlib.suppress(PyverbsError, DriverError):
            if self._listener is not None:
                self._listener.close()
        self._channel.close()


def _places() -> list[LocalPort]:
    """Where all devices of this process are, which the listener keeps open; OSError ENODEV."""
    places = DEVICES.all()
    for place in places:
        DEVICES.release(place.device)
    if not places:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    return places
