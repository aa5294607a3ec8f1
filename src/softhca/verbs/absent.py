"""How features that a software adapter has not are refused: as a device without them does it."""

import errno
from typing import Any, NoReturn

from softhca.verbs.base import PyverbsCM, PyverbsObject
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError


def refuse(what: str) -> NoReturn:
    """Raise `PyverbsRDMAError` with ``EOPNOTSUPP``; ``what`` says what was asked for."""
    raise PyverbsRDMAError(f"{what}: this device has no such feature", errno.EOPNOTSUPP)


def absent_method(*arguments: Any, **keywords: Any) -> NoReturn:
    """A method that is refused with ``EOPNOTSUPP``, also where the class itself is asked."""
    refuse("Failed to use a feature")


absent_property = property(absent_method)


def absent_function(*arguments: Any, **keywords: Any) -> NoReturn:
    """Refused with ``EOPNOTSUPP``."""
    refuse("Failed to use another maker's function")


class AbsentObject(PyverbsCM):
    """An object of a feature that the device has not: making one is refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        refuse(f"Failed to create {type(self).__name__}")

    def close(self) -> None:
        """There is nothing to release."""


class OtherVendorDevice(PyverbsCM):
    """A context of a device of another maker, which no device here is: `PyverbsUserError`."""

    __slots__ = ()

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise PyverbsUserError(f"{type(self).__name__}: this device is another maker's")


class AbsentAttributes(PyverbsObject):
    """Attributes for such an object: they are kept as given, and nothing reads them."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.comp_mask = 0
        vars(self).update(keywords)
