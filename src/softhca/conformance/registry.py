"""Checks and the statements that they hold.

A check is a function of one argument, the `rig.Setting` that it is to run in; it builds adapters, acts, and
raises `ConformanceError` with what it saw instead.  ``@holds`` registers it::

    @holds("C9-184", "o9-129")
    def first_or_only_is_accepted_whatever_its_psn(setting: Setting) -> None:
        \"\"\"One line that says what is done and what must be seen.\"\"\"

It runs once in every setting of ``settings``, so that a statement holds on native and on RoCE links alike.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import softhca.conformance
from softhca.conformance.rig import HCA_SETTINGS, Setting

CheckFunction = Callable[[Setting], None]


class ConformanceError(Exception):
    """Something else was seen than a statement demands; the message says what."""


@dataclass(frozen=True)
class Check:
    """``name`` is module and function, ``ids`` the statements that it holds, ``text`` what it does."""

    name: str
    ids: tuple[str, ...]
    function: CheckFunction
    settings: tuple[Setting, ...]

    @property
    def text(self) -> str:
        """The check's docstring in one line."""
        return " ".join((self.function.__doc__ or "").split())

    def run(self) -> None:
        """Run it in all its settings; ConformanceError, which names the setting."""
        for setting in self.settings:
            try:
                self.function(setting)
            except ConformanceError as error:
                raise ConformanceError(f"{setting.name}: {error}") from None
            except Exception as error:
                raise ConformanceError(f"{setting.name}: {type(error).__name__}: {error}") from error


_checks: dict[str, Check] = {}


def holds(
    *ids: str, settings: tuple[Setting, ...] = HCA_SETTINGS
) -> Callable[[CheckFunction], CheckFunction]:
    """Mark a check with the statements ``ids``.  ValueError when it names none or its name is taken."""

    def mark(function: CheckFunction) -> CheckFunction:
        register(f"{function.__module__.rpartition('.')[2]}.{function.__name__}", ids, function, settings)
        return function

    return mark


def register(name: str, ids: tuple[str, ...], function: CheckFunction, settings: tuple[Setting, ...]) -> None:
    """Add a check by its name; what ``holds`` does.  ValueError as there."""
    if not ids or not settings:
        raise ValueError(f"{name} holds no statement, or runs in no setting")
    if name in _checks and _checks[name].function is not function:
        raise ValueError(f"there are two checks {name}")
    _checks[name] = Check(name, ids, function, settings)


def known() -> tuple[Check, ...]:
    """The checks registered so far."""
    return tuple(_checks.values())


def collect() -> tuple[Check, ...]:
    """All checks of all modules of this package, in the modules' order by name."""
    for module in sorted(found.name for found in pkgutil.iter_modules(softhca.conformance.__path__)):
        importlib.import_module(f"softhca.conformance.{module}")
    return known()


def expect(what: str, seen: Any, wanted: Any) -> None:
    """ConformanceError unless ``seen`` equals ``wanted``; ``what`` says of what they are."""
    if seen != wanted:
        raise ConformanceError(f"{what}: {seen!r} instead of {wanted!r}")


def ensure(condition: bool, otherwise: str) -> None:
    """ConformanceError ``otherwise`` unless ``condition``."""
    if not condition:
        raise ConformanceError(otherwise)
