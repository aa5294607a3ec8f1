"""Texts that users and scripts write: the faults of worlds and ``SOFTHCA_DEVICES``.

Either an error of one line, or a value whose text gives it again.  Input: which, then the text.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.links.faults import Faults, FaultsError
from softhca.runtime import specification

WORDS = (
    "loss=", "duplicate=", "reorder=", "corrupt=", "truncate=", "delay=", "jitter=", "reorder_delay=",
    "bandwidth=", "burst=", "burst_length=", "partition=", "flap=", "stall=", "skew=", "seed=", ",", "1%",
    "0.5", "10us", "5ms", "GB/s", "1>2@", "..", "/", "ppm", "9" * 40, "1e9", "nan", "-1", ".", "s", "µs", "²",
)  # fmt: skip
DEVICES = (
    "softhca0=", "a=", "udp:", "unix:", "127.0.0.2", "[2001:db8::1]", "*", "lo", "?", "mtu=", "4096",
    "buffer=", "131072", "segmenting=", "10.0.0.1", "+", "::1", "check_identification=", "1", "&", ",",
    "@name", "/tmp/x", "[", "]", "%1", "\udcff", "٣", " ", "\n",
)  # fmt: skip


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.byte() & 3
    words = DEVICES if kind & 1 else WORDS
    if kind & 2:
        text = choices.rest().decode("utf-8", "surrogateescape")
    else:
        text = ""
        while choices.more and len(text) < 4096:
            text += choices.pick(words) if choices.byte() & 7 else chr(choices.number(2))
    if kind & 1:
        check_devices(text)
    else:
        check_faults(text)


def check_faults(text: str) -> None:
    """Faults, or one line why not."""
    try:
        faults = Faults.parse(text)
    except FaultsError as error:
        one_line(error)
        return
    again = Faults.parse(str(faults))
    assert again == faults, str(faults)


def check_devices(text: str) -> None:
    """Devices, or one line why not."""
    try:
        devices = specification.parse(text)
    except specification.DeviceSpecificationError as error:
        one_line(error)
        return
    again = specification.parse(",".join(map(str, devices)))
    assert again == devices, (again, devices)


def one_line(error: ValueError) -> None:
    """The message can be printed and is one line."""
    line = str(error)
    assert line
    assert len(line.splitlines()) == 1, line
    line.encode("utf-8", "surrogateescape")


def seeds() -> Iterator[bytes]:
    """Right texts."""
    for text in (
        "loss=1%,reorder=0.5%,delay=20us,jitter=1ms,seed=7", "partition=1>2@10ms..60ms,partition=2>1@1s..",
        "bandwidth=1.5GB/s,burst=0.1%,burst_length=8", "flap=10ms/1ms,stall=5ms/2us,skew=200ppm",
        "duplicate=0.25,corrupt=5%,truncate=1%,reorder_delay=20us",
    ):  # fmt: skip
        yield b"\x02" + text.encode()
    for text in (
        "softhca0=udp:127.0.0.2?mtu=1024&buffer=212992,b=udp:[2001:db8::1]", "a=udp:eth0,c=udp:*,d=unix:@x",
        "e=unix:/run/softhca", "f=udp:10.0.0.1?segmenting=10.0.0.2+2001:db8::2&check_identification=1", "",
    ):  # fmt: skip
        yield b"\x03" + text.encode()
    for kind in (0, 1):
        for word in range(0, 30, 3):
            yield bytes([kind, 1, word, 1, word + 1, 1, word + 2])
