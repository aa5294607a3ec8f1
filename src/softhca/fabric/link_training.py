"""What width and speed two ports agree on when their link is trained (IBTA vol. 1, 14.2.5.6; vol. 2, link
training): the widest and the fastest that both have enabled.

What a manager enables at a port acts at the next training: it takes the link down for that, as
``ibportstate reset`` does.
"""

from __future__ import annotations

from softhca.fabric.port_state import NO_EXTENDED2_SPEED, NO_EXTENDED_SPEED
from softhca.fabric.topology import LinkSpeed, LinkWidth
from softhca.management.attributes import PortInfo


def trained(one: PortInfo, other: PortInfo) -> tuple[LinkWidth, LinkSpeed] | None:
    """The width and speed of a link between two ports; None: they have none in common, and the link does not
    come up."""
    widths = [
        width for width in LinkWidth if one.link_width_enabled & other.link_width_enabled & width.code
    ]  # fmt: skip
    speeds = _speeds(one) & _speeds(other)
    if not widths or not speeds:
        return None
    return max(widths), max(speeds)


def _speeds(port: PortInfo) -> set[LinkSpeed]:
    """What a port has enabled; the speeds of the extended fields need none of the older ones."""
    extended = port.link_speed_ext_enabled if port.link_speed_ext_enabled != NO_EXTENDED_SPEED else 0
    second = port.link_speed_ext2_enabled if port.link_speed_ext2_enabled != NO_EXTENDED2_SPEED else 0
    return {
        speed
        for speed in LinkSpeed
        if second & speed.extended2_code
        or extended & speed.extended_code
        or (speed <= LinkSpeed.QDR and port.link_speed_enabled & speed.code)
    }
