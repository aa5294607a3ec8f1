"""Whether an attachment is still alive: every post and poll checks this first."""

import errno

from softhca.driver.errors import DriverError


class Liveness:
    """``dead`` is the reason why every call fails from now on; empty while the attachment is alive.

    ``active`` is set by a poll that takes a completion.  Whoever reads it clears it.
    """

    __slots__ = ("active", "dead")

    def __init__(self):
        self.dead = ""
        self.active = False

    def check(self):
        """DriverError EIO when the attachment is dead."""
        if self.dead:
            raise DriverError(errno.EIO, self.dead)
