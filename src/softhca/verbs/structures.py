"""Attribute objects as the compiled pyverbs has them: C structures whose numbers have a width.

A value that is written is converted as Cython does it: a float, and whatever has ``__int__``, is truncated;
what is no number is TypeError; what does not fit the C type is OverflowError.  An attribute that there is not
is AttributeError, and none can be deleted.  Whatever is refused leaves the object as it was.
"""

from collections.abc import Iterable, Mapping
from types import MemberDescriptorType
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from softhca.verbs.base import PyverbsObject, require

_Value = TypeVar("_Value")


class CInteger:
    """A C integer type; called, it converts a Python value."""

    __slots__ = ("_high", "_low", "_name")

    def __init__(self, name: str, bits: int, signed: bool = False) -> None:
        self._name = name
        self._low = -(1 << bits - 1) if signed else 0
        self._high = (1 << bits - signed) - 1

    def __call__(self, value: Any) -> int:
        """``value`` as a whole number of this type.

        TypeError: it is no number; OverflowError: it does not fit; ValueError: it is not a number (NaN).
        """
        if type(value) is int and self._low <= value <= self._high:
            return value
        if not hasattr(type(value), "__int__") and not hasattr(type(value), "__index__"):
            raise TypeError("an integer is required")
        number = int(value)
        if number < self._low and not self._low:
            raise OverflowError(f"can't convert negative value to {self._name}")
        if not self._low <= number <= self._high:
            raise OverflowError(f"value too large to convert to {self._name}")
        return number


UINT8 = CInteger("unsigned char", 8)
UINT16 = CInteger("unsigned short", 16)
UINT32 = CInteger("unsigned int", 32)
UINT64 = CInteger("unsigned long", 64)
INT32 = CInteger("int", 32, signed=True)
INT64 = CInteger("long", 64, signed=True)

Fields = Mapping[str, CInteger]


class Part(Generic[_Value]):
    """An attribute of a structure that is another object: one of ``kinds`` (TypeError for others), or None
    where it is ``optional``.  It stands in the slot of its name with an underscore in front.

    ``copied``: it is copied when it is assigned and when it is read, as a structure within a structure is.
    """

    def __init__(self, about: str, *kinds: type, optional: bool = True, copied: bool = False) -> None:
        self.__doc__ = about
        self._kinds = kinds
        self._optional = optional
        self._copied = copied

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...
    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        value = getattr(instance, f"_{self._name}")
        return value.copy() if self._copied else value

    def __set__(self, instance: object, value: _Value) -> None:
        if value is not None or not self._optional:
            require(value, self._kinds if len(self._kinds) > 1 else self._kinds[0], self._name)
        kept: Any = value
        setattr(instance, f"_{self._name}", kept.copy() if self._copied else kept)


class Member:
    """A number of the structure that stands in the slot ``part``; AttributeError for who assigns to one that
    is not ``writable``.
    """

    def __init__(self, about: str, part: str, writable: bool = False) -> None:
        self.__doc__ = about
        self._part = part
        self._writable = writable

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> int: ...
    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else getattr(getattr(instance, self._part), self._name)

    def __set__(self, instance: object, value: int) -> None:
        if not self._writable:
            kind = type(instance).__name__
            raise AttributeError(f"attribute {self._name!r} of {kind!r} objects is not writable")
        setattr(getattr(instance, self._part), self._name, value)


class Structure(PyverbsObject):
    """An object whose attributes named in ``_FIELDS`` are numbers of those types; subclasses have slots."""

    __slots__ = ()
    _FIELDS: ClassVar[Fields] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        convert = self._FIELDS.get(name)
        object.__setattr__(self, name, value if convert is None else convert(value))

    def __delattr__(self, name: str) -> None:
        if not hasattr(type(self), name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NotImplementedError("__del__")

    def _set(self, values: Mapping[str, Any]) -> None:
        """Several attributes."""
        for name, value in values.items():
            setattr(self, name, value)


class ReadOnly(PyverbsObject):
    """An object whose attributes a program can only read."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), MemberDescriptorType):  # a slot
            kind = type(self).__name__
            raise AttributeError(f"attribute {name!r} of {kind!r} objects is not writable")
        object.__setattr__(self, name, value)

    def _make(self, values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Set attributes, while the object is made."""
        for name, value in dict(values).items():
            object.__setattr__(self, name, value)
