"""A dissector for Wireshark, in Lua, of the packets that Wireshark's own reads wrongly or not at all.

Wireshark 4.0 looks for the RDETH of reliable datagrams eight bytes too late and knows no XRC, no ATOMIC
WRITE, no FLUSH and no CNP.  The dissector's tables are written from those by which this package encodes and
decodes, so that both say the same of a packet; ``wireshark.lua`` beside this file reads by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from softhca.wire.bth import Bth
from softhca.wire.grh import Grh
from softhca.wire.layout import Field, Header
from softhca.wire.lrh import Lrh
from softhca.wire.opcodes import ATOMIC_WRITE, CONGESTION, FLUSH, OPCODES, RD, SERVICE_NAMES, XRC, Opcode
from softhca.wire.packet import EXTENSIONS

HEADERS: dict[str, type[Header]] = {"lrh": Lrh, "grh": Grh, "bth": Bth, **EXTENSIONS}
"""The headers that the dissector shows, by the name under which a filter finds their fields."""


def is_read_by_us(row: Opcode) -> bool:
    """Whether the dissector takes packets of this opcode; all others stay with Wireshark's own."""
    return row.service in (RD, XRC, CONGESTION) or row.operation in (ATOMIC_WRITE, FLUSH)


def dissector() -> str:
    """The Lua file: tables of headers and opcodes, and what reads packets by them."""
    reader = resources.files("softhca.wire").joinpath("wireshark.lua").read_text(encoding="utf-8")
    return "\n".join((*_headers(), *_opcodes(), reader))


def _headers() -> Iterator[str]:
    yield "-- Written by softhca: a dissector for Wireshark and tshark (-X lua_script:FILE)."
    yield "local HEADERS = {"
    for name, header in HEADERS.items():
        layout = ", ".join(map(_field, header.LAYOUT))
        yield f"  {name} = {{ bytes = {header.LENGTH_BYTES}, layout = {{ {layout} }} }},"
    yield "}"


def _field(field: Field) -> str:
    return f'{{ name = "{field.name}", bits = {field.bits}, bytes = {str(field.as_bytes).lower()} }}'


def _opcodes() -> Iterator[str]:
    rows = [row for row in OPCODES.values() if is_read_by_us(row)]
    yield "local OPCODES = {"
    for row in rows:
        headers = ", ".join(f'"{name}"' for name in ("bth", *row.headers))
        yield (
            f'  [0x{row.code:02x}] = {{ name = "{row.name}", service = "{SERVICE_NAMES[row.service]}", '
            f"headers = {{ {headers} }}, payload = {str(row.payload).lower()} }},"
        )
    yield "}"
    names = ", ".join(f'[0x{row.code:02x}] = "{row.name}"' for row in rows)
    yield f"local OPCODE_NAMES = {{ {names} }}"
