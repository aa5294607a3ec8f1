"""Memory windows: the peer may read one large message of this side's memory, as long as that is on offer."""

from __future__ import annotations

import contextlib
import threading

from softhca.channels.registration import Lease
from softhca.verbs import enums as e
from softhca.verbs.mr import MW, MWBindInfo
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.wr import SendWR

MOST_WINDOWS = 32
"""Large messages on offer of one connection at a time."""
_TYPE_2 = int(e.IBV_MW_TYPE_2)
_READ = int(e.IBV_ACCESS_REMOTE_READ)
_BIND, _INVALIDATE = int(e.IBV_WR_BIND_MW), int(e.IBV_WR_LOCAL_INV)


class Window:
    """One of them; ``lease`` is what it is bound to."""

    def __init__(self, pd: PD) -> None:
        self._mw = MW(pd, _TYPE_2)
        self._key = self._mw.rkey & 0xFF
        self.lease: Lease | None = None
        self.rkey = 0

    def bind(self, lease: Lease) -> SendWR:
        """The request that binds it, with a key that it has not had for long."""
        request = SendWR(0, _BIND, send_flags=0)
        request.set_bind_wr(self._mw, MWBindInfo(lease.mr, lease.address, lease.length, _READ))
        self._key = (self._key + 1) & 0xFF
        self.rkey = request.imm_data = self._mw.rkey & ~0xFF | self._key
        self.lease = lease
        return request

    def invalidate(self) -> SendWR:
        """The request that makes its key invalid."""
        return SendWR(0, _INVALIDATE, imm_data=self.rkey, send_flags=0)

    def close(self) -> None:
        """Free it."""
        self._mw.close()


class Windows:
    """The windows of one connection.  Any thread may call any method."""

    def __init__(self, pd: PD) -> None:
        self._pd = pd
        self._lock = threading.RLock()
        self._unused: list[Window] = []
        self._made = 0

    @property
    def free(self) -> bool:
        """Whether `take` has one."""
        return bool(self._unused) or self._made < MOST_WINDOWS

    def take(self) -> Window | None:
        """One that nobody uses; None: all are in use.  PyverbsError."""
        with self._lock:
            if self._unused:
                return self._unused.pop()
            if self._made >= MOST_WINDOWS:
                return None
            self._made += 1
        try:
            return Window(self._pd)
        except BaseException:
            with self._lock:
                self._made -= 1
            raise

    def give_back(self, window: Window) -> None:
        """It is bound to nothing any more."""
        window.lease = None
        with self._lock:
            self._unused.append(window)

    def abandon(self) -> None:
        """In a forked child: they are the parent's, of which a thread may have had the lock."""
        self._lock = threading.RLock()

    def close(self) -> None:
        """Free those that nobody uses; the others end with the domain."""
        with self._lock:
            unused, self._unused = self._unused, []
        for each in unused:
            with contextlib.suppress(PyverbsError):
                each.close()
