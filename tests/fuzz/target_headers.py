"""Every header's own decoder and encoder: the same bytes again, and a refusal for what is short or too wide.

Input: which header, where it begins, what is wrong with one field, its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuzz_choices import Choices

from softhca.wire.bth import Bth
from softhca.wire.errors import WireError
from softhca.wire.grh import Grh
from softhca.wire.ip import Ethernet, Ipv4, Ipv6, LinuxCooked, LinuxCooked2, Udp, Vlan, internet_checksum
from softhca.wire.layout import Header
from softhca.wire.lrh import Lrh
from softhca.wire.packet import EXTENSIONS
from softhca.wire.rwh import Rwh

HEADERS: tuple[type[Header], ...] = (
    Bth, Lrh, Grh, Rwh, Ethernet, Vlan, LinuxCooked, LinuxCooked2, Ipv4, Ipv6, Udp, *EXTENSIONS.values(),
)  # fmt: skip


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.pick(HEADERS)
    offset = choices.byte() - 4
    wrong = choices.pick(kind.LAYOUT)
    value = choices.number(1 + choices.below(9)) - choices.below(4)
    buffer = bytes(max(offset, 0)) + choices.rest()
    try:
        header = kind.decode(memoryview(buffer), offset)
    except WireError:
        assert offset < 0 or offset + kind.LENGTH_BYTES > len(buffer)
        return
    assert header.encode() == buffer[offset : offset + kind.LENGTH_BYTES]
    assert sum(field.bits for field in kind.LAYOUT) == 8 * kind.LENGTH_BYTES
    if isinstance(header, Ipv4):
        assert internet_checksum(header.with_checksum().encode()) == 0
    given = value.to_bytes(10, "big", signed=True)[-choices.at % 11 :] if wrong.as_bytes else value
    changed = replace(header, **{wrong.name: given})  # type: ignore[type-var]
    try:
        encoded = changed.encode()
    except WireError:
        fits = len(given) * 8 == wrong.bits if isinstance(given, bytes) else 0 <= given < 1 << wrong.bits
        assert not fits
        return
    assert kind.decode(encoded) == changed


def seeds() -> Iterator[bytes]:
    """One of each."""
    for number, kind in enumerate(HEADERS):
        yield bytes([number, 4, 0, 1, 2, 3, 0]) + bytes(range(1, 1 + kind.LENGTH_BYTES))
