"""Strategies and samples that several tests of the wire room share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from softhca.wire.bth import Bth
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import EXTENSIONS, Packet, Transport, assemble
from softhca.wire.route import NATIVE, ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
FRAMINGS = {"native": NATIVE, "native_grh": NATIVE, "ipv4": ROCE_V4, "ipv6": ROCE_V6}


def v4(text: str) -> bytes:
    """IPv4-mapped GID of a dotted address."""
    return V4_MAPPED_PREFIX + bytes(int(part) for part in text.split("."))


def fields_of(header: type[Header]) -> st.SearchStrategy[Any]:
    """Any value of one header, reserved bits included."""
    values = {
        field.name: st.binary(min_size=field.bits // 8, max_size=field.bits // 8)
        if field.as_bytes
        else st.integers(0, (1 << field.bits) - 1)
        for field in header.LAYOUT
    }
    return st.builds(header, **values)


@st.composite
def transports(draw: st.DrawFn, max_payload: int = 80) -> Transport:
    """A well-formed transport packet of any opcode; its ICRC is arbitrary."""
    row = OPCODES[draw(st.sampled_from(sorted(OPCODES)))]
    extensions = tuple(draw(fields_of(EXTENSIONS[name])) for name in row.headers)
    payload = draw(st.binary(max_size=max_payload)) if row.payload else b""
    pad = -len(payload) % 4
    bth = draw(fields_of(Bth).map(lambda b: {f.name: getattr(b, f.name) for f in Bth.LAYOUT}))
    bth.update(opcode=row.code, pad=pad, tver=0)
    padding = draw(st.binary(min_size=pad, max_size=pad))
    return Transport(Bth(**bth), extensions, payload, padding, draw(st.integers(0, 0xFFFFFFFF)))


@st.composite
def routes(draw: st.DrawFn, kind: str | None = None) -> Route:
    """Any route of one of the four kinds."""
    kind = kind or draw(st.sampled_from(sorted(FRAMINGS)))
    if kind == "ipv4":
        ends = [V4_MAPPED_PREFIX + draw(st.binary(min_size=4, max_size=4)) for _ in range(2)]
    else:
        ends = [draw(st.binary(min_size=16, max_size=16)) for _ in range(2)]
    return Route(
        FRAMINGS[kind],
        *ends,
        source_port=draw(st.integers(0, 0xFFFF)),
        traffic_class=draw(st.integers(0, 0xFF)),
        flow_label=draw(st.integers(0, 0xFFFFF)),
        hop_limit=draw(st.integers(0, 0xFF)),
        identification=draw(st.integers(0, 0xFFFF)) if kind == "ipv4" else 0,
        slid=draw(st.integers(0, 0xFFFF)),
        dlid=draw(st.integers(0, 0xFFFF)),
        sl=draw(st.integers(0, 15)),
        has_grh=kind == "native_grh",
    )


def sample_route(kind: str = "ipv4", **changes: Any) -> Route:
    """A fixed route of one of the four kinds."""
    ends = (v4("10.0.0.1"), v4("10.0.0.2")) if kind == "ipv4" else (bytes(range(16)), bytes(range(16, 32)))
    values = {"slid": 0x17D2, "dlid": 0x375C, "sl": 1, "has_grh": kind == "native_grh", **changes}
    return Route(FRAMINGS[kind], *ends, **values)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """A sound packet of any opcode and framing, as :func:`assemble` makes it."""
    transport = draw(transports())
    vl = draw(st.integers(0, 15))
    return assemble(draw(routes()), transport.bth, transport.extensions, transport.payload, vl)


def every_opcode(kind: str) -> list[Packet]:
    """One plain packet per opcode, reserved bits zero."""
    route = sample_route(kind)
    made = []
    for row in OPCODES.values():
        extensions = tuple(EXTENSIONS[name].decode(bytes(28)) for name in row.headers)
        payload = bytes(range(1, 11)) if row.payload else b""
        if row.name == "CNP":
            payload = bytes(16)
        bth = Bth(row.code, dest_qp=0x123456, psn=row.code)
        made.append(assemble(route, bth, extensions, payload))
    return made
