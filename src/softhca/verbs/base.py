"""What all verbs objects share: ownership, closing, and the one place where driver errors become verbs
errors.

Ownership.  A resource belongs to one or more parents (a QP to its PD, its CQs and its SRQ).  Closing a parent
first closes what is left of its children, youngest first, so that a user of an element goes before the
element.  Parents hold their children weakly, children their parents strongly; `close` is idempotent; dropping
the last reference closes.

Garbage collection.  The collector may start at any allocation, also in the middle of a driver call.  A
resource that it finds (as part of a reference cycle) is therefore not closed there: its close is deferred to
the next call that controls something or polls.

Threads.  Any thread may call any method of any object.  Of several that close one object, one does, and the
others wait until it is closed; a thread waits only for what stands below all that it is closing itself, so
none waits for another in a ring.

The end of the process.  Devices are closed before the interpreter clears modules, which gives everything
back.  Afterwards the other threads stand still for ever, some of them with locks, so nothing is closed any
more.
"""

import contextlib
import ctypes
import errno
import gc
import itertools
import logging
import operator
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

from softhca.driver.errors import DriverError
from softhca.machine import deferred_signals
from softhca.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

_RKEY_CONSUMER_MASK = 0xFF


def inc_rkey(rkey: int) -> int:
    """The key with its low byte (the consumer's part) advanced by one, modulo 256."""
    return (rkey & ~_RKEY_CONSUMER_MASK) | ((rkey + 1) & _RKEY_CONSUMER_MASK)


def PyverbsRDMAErrno(msg: str) -> PyverbsRDMAError:
    """A `PyverbsRDMAError` that carries the C library's current errno."""
    return PyverbsRDMAError(msg, ctypes.get_errno())


def rdma_error(message: str, error: DriverError) -> PyverbsRDMAError:
    """The verbs error for a refusal of the driver: same errno, the driver's reason in the text."""
    return PyverbsRDMAError(f"{message}: {error.message}", error.errno)


class translated:
    """Context manager: a `DriverError` inside leaves as `PyverbsRDMAError` that begins with ``message``."""

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None:
        if deferred:
            close_deferred()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, DriverError):
            raise rdma_error(self._message, error) from error


class creating(translated):
    """`translated` around all that makes an object, `Resource._opened` included.  A signal that comes
    meanwhile is handled behind it: what was made is closed with the object, whatever its handler raises.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        translated.__enter__(self)
        deferred_signals.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        deferred_signals.end()
        translated.__exit__(self, kind, error, traceback)


class PyverbsObject:
    """Base of every object of the API; ``logger`` is the class's, below ``softhca.verbs``.

    Objects have the attributes of their class alone, as those of compiled classes have: every class has
    slots, and only classes that a program derives have room for more.
    """

    __slots__ = ("__weakref__",)

    @property
    def logger(self) -> logging.Logger:
        """The logger of this object's class."""
        return logging.getLogger(f"softhca.verbs.{type(self).__name__}")

    def set_log_level(self, val: int | str) -> None:
        """Set the level of the class's logger."""
        self.logger.setLevel(val)


def read_only(slot: str, about: str) -> Any:
    """An attribute that reads ``slot``, and that nobody sets: AttributeError."""
    return property(operator.attrgetter(slot), doc=about)


def sole_owner(owner: object, protocol: object = None) -> NoReturn:
    """``__reduce_ex__`` of what closes something when it is dropped.  TypeError for copies and pickles: a
    second owner would close it under the first.
    """
    raise TypeError(f"cannot pickle or copy {type(owner).__name__!r} objects")


class PyverbsCM(PyverbsObject):
    """An object with `close`, usable in a ``with`` statement."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to release."""


class Resource(PyverbsCM):
    """A verbs object that owns something in the device ``_driver``.  Subclasses implement `_destroy`."""

    __slots__ = ("_children", "_doubtful", "_driver", "_open", "_order")
    _doubtful: bool  # a signal handler has interrupted its destruction, which the device may have done
    _driver: "DeviceDriver"
    _open: bool  # True between successful creation and close
    _order: int
    _goes_first = False  # it may stand on a sibling that is younger than itself
    _children: "weakref.WeakValueDictionary[int, Resource] | None"  # made for the first one

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        """An object that is not open yet, also where its constructor is refused."""
        self = super().__new__(cls)
        self._open, self._order, self._children, self._doubtful = False, 0, None, False
        return self

    is_open = read_only("_open", "Whether it was made, and is not closed.")

    def _opened(self, *parents: "Resource | None") -> None:
        """Call at the end of a successful creation: from here on `close` has something to do."""
        self._order = next(_creation_order)
        self._open = True
        for parent in parents:
            if parent is not None:
                parent._adopt(self)

    def _adopt(self, child: "Resource") -> None:
        """``child`` stands on this object, and is closed before it."""
        if self._children is None:
            with _first_child:  # of threads that come at once, one makes it
                if self._children is None:
                    self._children = weakref.WeakValueDictionary()
        self._children[child._order] = child

    def _let_go(self, child: "Resource") -> None:
        """``child`` stands on it no more."""
        if self._children is not None:
            self._children.pop(child._order, None)

    def _require_open(self) -> None:
        if not self._open:
            raise PyverbsUserError(f"This {type(self).__name__} is closed")

    def close(self) -> None:
        """Close the children, then release what this object owns; a second call does nothing.

        Raises `PyverbsRDMAError` when the device refuses; the object then stays open, and so it does where a
        signal handler raises meanwhile.
        """
        if not self._open or sys.is_finalizing():
            return
        if deferred:
            close_deferred()
        lock = _closing_locks.setdefault(id(self), threading.RLock())
        if lock._is_owned():  # this thread is about to, further up in its calls
            return
        with lock:  # whatever a signal handler interrupts, it is given back
            if self._open:
                self._close()
        if not self._open:
            _closing_locks.pop(id(self), None)

    def _close(self) -> None:
        """`close`, for the one thread that does."""
        if self._children:
            # A list made in one step: other threads go on making children.
            children = [child for each in self._children.valuerefs() if (child := each()) is not None]
            for child in sorted(children, key=_closing_order, reverse=True):
                self._close_child(child)
        with deferred_signals.section():  # what is destroyed is not open any more
            if self._driver.alive:  # a closed or dead device has already released everything
                doubtful, self._doubtful = self._doubtful, True
                try:
                    with translated(f"Failed to close {type(self).__name__}"):
                        self._destroy()
                except PyverbsRDMAError as error:
                    if self._driver.alive and not (doubtful and error.error_code == errno.EINVAL):
                        self._doubtful = doubtful
                        raise
                    # The device has died of this very call, or does not answer, or has destroyed it before.
            self._open = False
            self._released()

    def _close_child(self, child: "Resource") -> None:
        child.close()

    def _destroy(self) -> None:
        """Give back what the device holds for this object; not called when the device is gone."""
        raise AssertionError(f"{type(self).__name__} owns nothing")

    def _released(self) -> None:
        """Drop what this process holds for the object; called once, after `_destroy`."""

    __reduce_ex__ = sole_owner

    def _drop(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # A handler of a signal may have raised before it was begun; at the end of all modules are cleared.
        if getattr(self, "_open", False) and not is_ending():
            close_dropped(self)

    __del__ = deferred_signals.finalizer(_drop)


class Dropped(Protocol):
    """What closes itself when it is dropped, a `Resource` above all; in which order says `_closing_order`."""

    _goes_first: bool
    _order: int

    @property
    def logger(self) -> logging.Logger:
        """Where a failure is told."""

    def close(self) -> None:
        """PyverbsError where that fails."""


def close_dropped(thing: Dropped) -> None:
    """For ``__del__``, but where the interpreter ends: close it, later where the collector has found it."""
    if _collecting():
        deferred.append(thing)
    else:
        _close_unreferenced(thing)


def _collecting() -> bool:
    """Whether the cyclic collector is at work: the phase that it has told last is its start."""
    return next(reversed(_phases), "stop") == "start"


_creation_order = itertools.count(1)
_first_child = threading.Lock()
deferred: deque[Dropped] = deque()  # to be closed
# What the collector calls is no function of Python: a signal that comes while it is at work would be handled
# in the first one, and an exception of its handler, as Ctrl-C's is, be dropped there.  A phase is taken out
# and put in again, so that the last one stands last.
_phases: dict[str, object] = {}
gc.callbacks += [_phases.pop, _phases.__setitem__]


_closing_locks: dict[int, Any] = {}
"""By an object's identity: who has it closes that."""
os.register_at_fork(after_in_child=_closing_locks.clear)  # threads that close are the parent's
os.register_at_fork(
    before=_first_child.acquire, after_in_parent=_first_child.release, after_in_child=_first_child.release
)


def _closing_order(resource: Dropped) -> tuple[bool, int]:
    return resource._goes_first, resource._order


def _close_unreferenced(resource: Dropped) -> None:
    try:
        resource.close()
    except PyverbsError as error:  # nobody is left to get it
        resource.logger.warning("could not be closed when it was dropped: %s", error)


def close_deferred() -> None:
    """Deferred close: of what the collector has found, youngest first (a QP before its PD)."""
    waiting: list[Dropped] = []
    with contextlib.suppress(IndexError):  # other threads do so too
        while deferred:
            waiting.append(deferred.popleft())
    for resource in sorted(waiting, key=_closing_order, reverse=True):
        _close_unreferenced(resource)


def require(value: Any, kind: type | tuple[type, ...], what: str) -> None:
    """TypeError, as the compiled pyverbs has it, unless the argument ``what`` is an instance of ``kind``."""
    if not isinstance(value, kind):
        names = kind.__name__ if isinstance(kind, type) else "/".join(each.__name__ for each in kind)
        raise TypeError(
            f"Argument {what!r} has incorrect type (expected {names}, got {type(value).__name__})"
        )
