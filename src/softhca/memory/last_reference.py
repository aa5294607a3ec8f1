"""What is done when an object goes, and not when it is finalized.

The collector finalizes all of a cycle before objects in it, that their finalizers bring back, are closed by
what they refer to.  What they still need must not be ended by a finalizer, therefore, but by an object that
the finalizer leaves behind, in an attribute of the finalized one: it goes with the last reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from softhca.machine import deferred_signals


class AtLast:
    """Calls ``action``, which may be changed before, when it goes.

    Never at the end of the interpreter, when names of modules have gone and threads may stand anywhere.
    """

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def _go(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self.action()

    __del__ = deferred_signals.finalizer(_go)
