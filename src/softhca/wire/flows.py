"""Which UDP source port a flow has, so that switches spread flows over their paths (IBTA annex A17.9.2).

A connection's label follows from both queue pairs' numbers, the port from the label, by the formulas that
RDMA stacks have agreed on: both ends, and whoever looks at them, find the same number.
"""

from __future__ import annotations

FIRST_SOURCE_PORT = 0xC000
LAST_SOURCE_PORT = 0xFFFF
_PORT_BITS = 14
_PORT_MASK = (1 << _PORT_BITS) - 1
_LABEL_BITS = 20
_LABEL_MASK = (1 << _LABEL_BITS) - 1


def flow_label(local_qp: int, remote_qp: int) -> int:
    """The 20 bits that tell a connection's flow from others: the numbers' product, folded."""
    product = local_qp * remote_qp
    return (product ^ product >> _LABEL_BITS ^ product >> 2 * _LABEL_BITS) & _LABEL_MASK


def source_port(label: int) -> int:
    """The source port of a flow label (or of a number up to 32 bits): fourteen bits of it, from 0xC000 on."""
    return FIRST_SOURCE_PORT | (label ^ label >> _PORT_BITS ^ label >> 2 * _PORT_BITS) & _PORT_MASK
