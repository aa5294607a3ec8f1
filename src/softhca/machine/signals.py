"""Which exceptions are a signal handler's.

A handler of the program may run between any two steps of Python in the main thread, and what it raises then
comes out of whatever code was under way.  It may be of any class, also of one by which that code says that it
refuses something (TimeoutError is an OSError), and means something else: the code did not come to its end.
"""

from __future__ import annotations

import inspect
from types import FrameType, TracebackType

__all__ = ["raised_by_handler", "suppressed"]


class suppressed:
    """`contextlib.suppress`, which lets through what a signal handler has raised."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return kind is not None and issubclass(kind, self._kinds) and not raised_by_handler(error)


def raised_by_handler(error: BaseException | None) -> bool:
    """Whether ``error``, which has been caught, came out of a signal handler that had interrupted what the
    catching code called.

    Of all functions only handlers (and trace functions) are called with the very frame that they have
    interrupted, their caller, as an argument.  One that is not written in Python, or has forgotten that
    argument when it raises, is not recognized.
    """
    step = None if error is None else error.__traceback__
    while step is not None:
        if _is_handler(step.tb_frame):
            return True
        step = step.tb_next
    return False


def _is_handler(frame: FrameType) -> bool:
    """Whether a frame, of a function, has its caller's among its arguments."""
    caller, code = frame.f_back, frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount  # *arguments stand behind them
    count += bool(code.co_flags & inspect.CO_VARARGS)
    if caller is None or not code.co_flags & inspect.CO_OPTIMIZED or not code.co_varnames:
        return False
    values = frame.f_locals
    try:
        for name in code.co_varnames[:count]:
            value = values.get(name)
            if value is caller or (isinstance(value, tuple) and any(each is caller for each in value)):
                return True
        return False
    finally:
        if type(values) is dict:
            # The frame keeps this copy (before Python 3.13), which has the exception in it, whose traceback
            # has the frame: nothing of what the function had would go before the garbage is collected.
            values.clear()
