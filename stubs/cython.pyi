"""What the pure-Python mode's names are to a checker of types: a C integer is an ``int``, an address is
anything.

Only the names that the compiled modules use.
"""

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

bint = bool
uchar = builtins.int
char = builtins.int
ushort = builtins.int
short = builtins.int
uint = builtins.int
int = builtins.int
ulong = builtins.int
long = builtins.int
ulonglong = builtins.int
longlong = builtins.int
Py_ssize_t = builtins.int
size_t = builtins.int
double = builtins.float

void = Any
NULL: Any
p_void = Any
p_char = Any
p_uchar = Any
p_ushort = Any
p_int = Any
p_uint = Any
p_ulonglong = Any

class pointer(Generic[T]):
    def __getitem__(self, index: builtins.int) -> T: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

compiled: bool
nogil: AbstractContextManager[None]

@overload
def declare(kind: type[T], value: T) -> T: ...
@overload
def declare(kind: Any, value: Any = ...) -> Any: ...
@overload
def cast(kind: type[T], value: Any, typecheck: bool = ...) -> T: ...
@overload
def cast(kind: Any, value: Any, typecheck: bool = ...) -> Any: ...
def address(of: T) -> pointer[T]: ...
def locals(**kinds: Any) -> Callable[[T], T]: ...
