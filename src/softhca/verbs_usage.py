"""Which verbs a program uses, and what it is refused: the account behind ``softhca run --explain``.

Where `FOLDER` names a folder, `install` wraps the public functions of pyverbs' modules and the public methods
of their classes.  Calls that the program makes itself are counted (what a verb calls in turn is not), errors
that it gets are kept with their text, and so are capabilities that it reads as 0.  A process that ends
leaves its account in the folder, as JSON; one that is killed leaves none.
"""

from __future__ import annotations

import atexit
import errno
import functools
import importlib
import inspect
import json
import multiprocessing.util
import os
import pkgutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "SOFTHCA_EXPLAIN"
PACKAGE = "softhca.verbs"
INTERNAL = tuple(f"{PACKAGE}.{name}" for name in ("absent", "base", "sharing"))
"""Modules whose functions pyverbs has not."""
MAX_TEXTS = 1000
"""So many different errors are kept; others are counted under the verb alone."""
NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


class _Inside(threading.local):
    """Whether the running thread is inside a verb."""

    depth = 0


class Account:
    """What a process has called and was told.  Threads may count at once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.calls: Counter[str] = Counter()
        self.errors: Counter[tuple[str, int, str]] = Counter()
        self.zeros: Counter[str] = Counter()
        self._inside = _Inside()
        self._lock = threading.Lock()

    def wrapped(self, call: Callable[..., Any], suffix: str, owner: str = "") -> Callable[..., Any]:
        """``call``, counted where the program makes it: as ``owner`` and ``suffix``, a method of objects as
        its object's class and ``suffix``.
        """
        inside, error_type = self._inside, _error_type()

        @functools.wraps(call)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            if inside.depth:
                return call(*arguments, **keywords)
            name = (owner or type(arguments[0]).__name__) + suffix
            with self._lock:
                self.calls[name] += 1
            inside.depth = 1
            try:
                return call(*arguments, **keywords)
            except error_type as error:
                self._note(name, error)
                raise
            finally:
                inside.depth = 0

        return counted

    def _note(self, name: str, error: Exception) -> None:
        key = name, getattr(error, "error_code", -1), str(error)
        with self._lock:
            self.errors[key if len(self.errors) < MAX_TEXTS else (name, key[1], "…")] += 1

    def read(self, name: str, value: Any) -> None:
        """The program has read a capability."""
        if not self._inside.depth and value == 0 and isinstance(value, int):
            with self._lock:
                self.zeros[name] += 1

    def write(self) -> None:
        """Leave the account in the folder, if it is still there."""
        with self._lock:
            errors = [[*key, count] for key, count in self.errors.items()]
            text = json.dumps({"calls": self.calls, "errors": errors, "zeros": self.zeros})
        try:
            Path(self.folder, f"{os.getpid()}.json").write_text(text)
        except OSError:
            return  # the run is over

    def begin(self) -> None:
        """A process of `multiprocessing` begins: it has an account of its own."""
        self._lock = threading.Lock()
        self._inside.depth = 0
        for counts in (self.calls, self.errors, self.zeros):
            counts.clear()
        multiprocessing.util.Finalize(None, self.write, exitpriority=0)


def _error_type() -> type[Exception]:
    module = importlib.import_module(f"{PACKAGE}.pyverbs_error")
    found: type[Exception] = module.PyverbsError
    return found


def install() -> None:
    """Count from now on, where `FOLDER` names a folder; twice is once."""
    folder = os.environ.get(FOLDER, "")
    if not folder or _installed:
        return
    account = Account(folder)
    _installed.append(account)
    package = importlib.import_module(PACKAGE)
    names = [each.name for each in pkgutil.iter_modules(package.__path__)]
    for module in [importlib.import_module(f"{PACKAGE}.{name}") for name in names]:
        _watch_module(account, module)
    atexit.register(account.write)
    multiprocessing.util.register_after_fork(account, Account.begin)


_installed: list[Account] = []


def _watch_module(account: Account, module: ModuleType) -> None:
    """Wrap what ``module`` itself defines and pyverbs has, too."""
    verbs_object = importlib.import_module(f"{PACKAGE}.base").PyverbsObject
    for name, value in list(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(value):
            if issubclass(value, verbs_object):
                _watch_class(account, value)
        elif inspect.isfunction(value) and module.__name__ not in INTERNAL:
            setattr(module, name, account.wrapped(value, "()", name))


def _watch_class(account: Account, kind: type) -> None:
    for name, value in list(vars(kind).items()):
        if name == "__init__":
            setattr(kind, name, account.wrapped(value, "()"))
        elif name.startswith("_"):
            continue
        elif inspect.isfunction(value):
            setattr(kind, name, account.wrapped(value, f".{name}()"))
        elif isinstance(value, (staticmethod, classmethod)):
            inner = account.wrapped(value.__func__, f".{name}()", kind.__name__)
            setattr(kind, name, type(value)(inner))
    if kind.__name__.endswith("Caps"):
        _watch_capabilities(account, kind)


def _watch_capabilities(account: Account, kind: type) -> None:
    """Note which fields of a record of capabilities are read."""
    fields = frozenset(kind.__annotations__)

    def reading(self: Any, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name in fields:
            account.read(f"{kind.__name__}.{name}", value)
        return value

    kind.__getattribute__ = reading  # type: ignore[method-assign,assignment]
