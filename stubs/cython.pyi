"""What the pure-Python mode's names are to a checker of types: a C integer is an ``int``, a pointer anything.

Only the names that the compiled modules use.
"""

import builtins
from collections.abc import Callable
from typing import Any, TypeVar, overload

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

compiled: bool

@overload
def declare(kind: type[T], value: T) -> T: ...
@overload
def declare(kind: Any, value: Any = ...) -> Any: ...
def cast(kind: Any, value: Any, typecheck: bool = ...) -> Any: ...
def address(of: Any) -> Any: ...
def locals(**kinds: Any) -> Callable[[T], T]: ...
