"""What a network and its adapters suffer: one frozen set of options, and its text.

``Faults.parse("loss=1%,reorder=0.5%,delay=20us,seed=7")``; ``str()`` gives a text that parses to the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any

FOREVER_NS = 1 << 62
MAX_ADAPTER = 250


class FaultsError(ValueError):
    """A fault option that cannot be; the message is one line that names the bad word."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing passes from adapter ``source`` to ``destination`` from ``start_ns`` until before ``end_ns``."""

    source: int
    destination: int
    start_ns: int
    end_ns: int = FOREVER_NS

    def __post_init__(self) -> None:
        for number in (self.source, self.destination):
            if not 1 <= number <= MAX_ADAPTER:
                raise FaultsError(f"partition: adapter {number} is not 1…{MAX_ADAPTER}")
        if not 0 <= self.start_ns < self.end_ns:
            raise FaultsError(f"partition: {self.start_ns}…{self.end_ns} ns is no interval")

    def __str__(self) -> str:
        end = "" if self.end_ns == FOREVER_NS else f"{self.end_ns}ns"
        return f"{self.source}>{self.destination}@{self.start_ns}ns..{end}"


@dataclass(frozen=True, slots=True)
class Crash:
    """Adapter ``adapter`` dies at ``start_ns`` with all that it knew, and a new one starts at ``end_ns``."""

    adapter: int
    start_ns: int
    end_ns: int = FOREVER_NS

    def __post_init__(self) -> None:
        if not 1 <= self.adapter <= MAX_ADAPTER:
            raise FaultsError(f"crash: adapter {self.adapter} is not 1…{MAX_ADAPTER}")
        if not 0 <= self.start_ns < self.end_ns:
            raise FaultsError(f"crash: {self.start_ns}…{self.end_ns} ns is no interval")

    def __str__(self) -> str:
        end = "" if self.end_ns == FOREVER_NS else f"{self.end_ns}ns"
        return f"{self.adapter}@{self.start_ns}ns..{end}"


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a world.  Probabilities are 0…1 a packet; FaultsError when an option cannot be.

    ``loss``; ``duplication``: a second copy arrives up to ``reorder_ns`` later; ``reordering``: held back
    up to ``reorder_ns`` while others pass; ``corruption``: one to three bits flip anywhere in BTH … ICRC
    (so few are always seen by a CRC-32); ``truncation``: only the first bytes arrive.  ``delay_ns`` each
    way, up to ``jitter_ns`` more (in order); ``bandwidth_bytes_per_s`` of each direction (0: unlimited).
    ``burst_loss``: probability that a run of losses begins, ``burst_length_packets`` its mean length
    (Gilbert's model; a quiet link ends it).  ``partitions``: directions that are cut for a while.  In each
    ``flap_period_ns`` the link is down for ``flap_ns``, and each adapter stands still for ``stall_ns`` in
    each ``stall_period_ns`` (what arrives then waits).  ``skew_ppm``: every adapter's clock runs up to so
    much too fast or slow.  ``crashes``: adapters that die, and may start again.  ``cq_entries``: completion
    queues are no longer than that, and ``poll_ns``: looked into no more often (0: as long and often as
    needed).  ``receives``: no queue pair's program posts more (0: all that it needs).
    ``seed`` changes the dice, not the odds.
    """

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    corruption: float = 0.0
    truncation: float = 0.0
    delay_ns: int = 1_000
    jitter_ns: int = 0
    reorder_ns: int = 20_000
    bandwidth_bytes_per_s: int = 0
    burst_loss: float = 0.0
    burst_length_packets: int = 8
    partitions: tuple[Partition, ...] = ()
    flap_period_ns: int = 0
    flap_ns: int = 0
    stall_period_ns: int = 0
    stall_ns: int = 0
    skew_ppm: int = 0
    crashes: tuple[Crash, ...] = ()
    cq_entries: int = 0
    poll_ns: int = 0
    receives: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in _PROBABILITIES:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise FaultsError(f"{name} {getattr(self, name)!r}: expected a probability, 0…100%")
        for name, (lowest, highest) in _BOUNDS.items():
            if not lowest <= getattr(self, name) <= highest:
                raise FaultsError(f"{name} {getattr(self, name)}: expected {lowest}…{highest}")
        for name in ("flap", "stall"):
            period_ns, part_ns = getattr(self, f"{name}_period_ns"), getattr(self, f"{name}_ns")
            if not part_ns < period_ns and (part_ns or period_ns):
                raise FaultsError(
                    f"{name} {period_ns}ns/{part_ns}ns: expected PERIOD/LENGTH, the length shorter"
                )

    @classmethod
    def parse(cls, text: str, base: Faults | None = None, without: Collection[str] = ()) -> Faults:
        """The options of ``word=value,…``; what is not named stays as in ``base`` (default: no faults).

        Words that are in ``without`` have no meaning here and are refused.
        """
        base = base or cls()
        values: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(base)}
        lists: dict[str, list[Any]] = {}
        for option in filter(None, (part.strip() for part in text.split(","))):
            word, equals, value = option.partition("=")
            if word not in _WORDS or word in without:
                problem = (
                    f"fault {word!r} acts in simulated worlds only"
                    if word in without
                    else f"unknown fault {word!r}"
                )
                good = ", ".join(other for other in _WORDS if other not in without)
                raise FaultsError(f"{problem}: expected one of {good}")
            if not equals:
                raise FaultsError(f"fault {word!r} has no value: expected {word}={_WORDS[word].example}")
            try:
                found = _WORDS[word].read(value)
            except FaultsError:
                raise
            except (ValueError, OverflowError):
                raise FaultsError(
                    f"{word}={value!r}: expected something like {_WORDS[word].example}"
                ) from None
            if word in _LISTS:
                lists.setdefault(_WORDS[word].names[0], []).append(found[0])
            else:
                values.update(zip(_WORDS[word].names, found, strict=True))
        return cls(**{**values, **{name: tuple(found) for name, found in lists.items()}})

    def __str__(self) -> str:
        parts = []
        for word, option in _WORDS.items():
            now = tuple(getattr(self, name) for name in option.names)
            if now == tuple(_DEFAULTS[name] for name in option.names):
                continue
            if word in _LISTS:
                parts += [f"{word}={one}" for one in now[0]]
            else:
                parts.append(f"{word}={option.write(*now)}")
        return ",".join(parts)


@dataclass(frozen=True, slots=True)
class _Word:
    """How one word of the text is read and written; ``names`` are the fields that it sets."""

    names: tuple[str, ...]
    example: str
    read: Callable[[str], tuple[Any, ...]]
    write: Callable[..., str] = str


_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNITS_BYTES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def _scaled(text: str, units: dict[str, int]) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ]*)", text.strip())
    if match is None or match[2] not in units:
        raise ValueError(text)
    return round(float(match[1]) * units[match[2]]) if "." in match[1] else int(match[1]) * units[match[2]]


def _duration(text: str) -> int:
    return _scaled(text, _UNITS_NS)


def _probability(text: str) -> tuple[float]:
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0.0 <= value <= 1.0:  # not a number is refused here as well
        raise ValueError(text)
    return (value,)


def _period(text: str) -> tuple[int, int]:
    period, _, part = text.partition("/")
    return _duration(period), _duration(part)


def _partition(text: str) -> tuple[Partition]:
    match = re.fullmatch(r"(\d+)>(\d+)@(.+?)\.\.(.*)", text)
    if match is None:
        raise ValueError(text)
    return (Partition(int(match[1]), int(match[2]), *_interval(match[3], match[4])),)


def _crash(text: str) -> tuple[Crash]:
    match = re.fullmatch(r"(\d+)@(.+?)\.\.(.*)", text)
    if match is None:
        raise ValueError(text)
    return (Crash(int(match[1]), *_interval(match[2], match[3])),)


def _interval(start: str, end: str) -> tuple[int, int]:
    return _duration(start), _duration(end) if end else FOREVER_NS


def _chance(name: str, example: str = "1%") -> _Word:
    return _Word((name,), example, _probability, repr)


def _time(name: str, example: str) -> _Word:
    return _Word((name,), example, lambda text: (_duration(text),), lambda value: f"{value}ns")


def _count(name: str, example: str) -> _Word:
    return _Word((name,), example, lambda text: (int(text),))


def _ratio(name: str, example: str) -> _Word:
    names = (f"{name}_period_ns", f"{name}_ns")
    return _Word(names, example, _period, lambda period, part: f"{period}ns/{part}ns")


_WORDS = {
    "loss": _chance("loss"),
    "duplicate": _chance("duplication"),
    "reorder": _chance("reordering"),
    "corrupt": _chance("corruption"),
    "truncate": _chance("truncation"),
    "delay": _time("delay_ns", "10us"),
    "jitter": _time("jitter_ns", "5us"),
    "reorder_delay": _time("reorder_ns", "20us"),
    "bandwidth": _Word(
        ("bandwidth_bytes_per_s",), "1GB/s", lambda text: (_scaled(text.removesuffix("/s"), _UNITS_BYTES),)
    ),
    "burst": _chance("burst_loss", "0.1%"),
    "burst_length": _count("burst_length_packets", "8"),
    "partition": _Word(("partitions",), "1>2@10ms..60ms", _partition),
    "flap": _ratio("flap", "10ms/1ms"),
    "stall": _ratio("stall", "10ms/1ms"),
    "skew": _Word(
        ("skew_ppm",), "200ppm", lambda text: (int(text.removesuffix("ppm")),), lambda ppm: f"{ppm}ppm"
    ),
    "crash": _Word(("crashes",), "2@1.05ms..3ms", _crash),
    "cq": _count("cq_entries", "12"),
    "poll": _time("poll_ns", "400us"),
    "receives": _count("receives", "4"),
    "seed": _count("seed", "7"),
}
_LISTS = ("partition", "crash")
_PROBABILITIES = ("loss", "duplication", "reordering", "corruption", "truncation", "burst_loss")
_SECOND_NS = 1_000_000_000
_BOUNDS = {
    "delay_ns": (0, _SECOND_NS),
    "jitter_ns": (0, _SECOND_NS),
    "reorder_ns": (0, _SECOND_NS),
    "bandwidth_bytes_per_s": (0, 10**12),
    "burst_length_packets": (1, 10**6),
    "flap_period_ns": (0, 3600 * _SECOND_NS),
    "flap_ns": (0, 3600 * _SECOND_NS),
    "stall_period_ns": (0, 3600 * _SECOND_NS),
    "stall_ns": (0, 3600 * _SECOND_NS),
    "skew_ppm": (0, 500_000),
    "cq_entries": (0, 10**6),
    "poll_ns": (0, _SECOND_NS),
    "receives": (0, 10**6),
    "seed": (0, (1 << 64) - 1),
}
_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Faults)}
