"""Whether an attachment can still be asked for anything: what every post and poll looks at first."""

import errno

from softhca.driver.errors import DriverError


class Standing:
    """``dead`` says why nothing can be asked any more; empty while all is well.  ``active`` is set by who
    takes a completion, and cleared by who wants to know."""

    __slots__ = ("active", "dead")

    def __init__(self):
        self.dead = ""
        self.active = False

    def check(self):
        """DriverError EIO when nothing can be asked any more."""
        if self.dead:
            raise DriverError(errno.EIO, self.dead)
