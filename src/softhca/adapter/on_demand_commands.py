"""The control commands on regions of a host's own memory, paged on demand."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.key_commands import check_room
from softhca.adapter.resources import Kind
from softhca.memory.on_demand import (
    IMPLICIT_BYTES,
    OnDemandRegion,
    can_copy,
    register_on_demand,
    reregister_on_demand,
)
from softhca.memory.regions import ON_DEMAND, Region
from softhca.queues import control_fields as control

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]


def wanted(fields: Fields) -> bool:
    """Whether a registration names addresses of the host's own memory, and no frames."""
    return bool(fields["access"] & ON_DEMAND) and not fields["frames"]


def is_on_demand(region: Region) -> bool:
    """Whether a region is one of those."""
    return isinstance(region, OnDemandRegion)


def reachable(host: Host) -> bool:
    """Whether the host's own memory can be reached by address: who attached a host of another process has
    tried."""
    return bool(host.foreign) and (host.pid > 0 or (host.pid == 0 and can_copy()))


def register(adapter: Adapter, host: Host, fields: Fields) -> Mapping[str, Any]:
    """Register addresses of the host's own memory, or (from 0, `IMPLICIT_BYTES`) all of them."""
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    if not reachable(host):
        raise OSError(errno.EOPNOTSUPP, "access: the adapter may not reach the memory of this host's process")
    _check_length(adapter, fields)
    check_room(adapter)
    region = register_on_demand(
        adapter.regions,
        host.pid,
        pd.number,
        fields["va"],
        fields["address"],
        fields["length"],
        fields["access"],
        bool(fields["held"]),
    )
    adapter.resources.add(Kind.MR, region.key, host.number, region, (pd,))
    return {"lkey": region.key, "rkey": region.key}


def _check_length(adapter: Adapter, fields: Fields) -> None:
    implicit = fields["length"] == IMPLICIT_BYTES and not fields["address"] and not fields["va"]
    if fields["length"] > adapter.config.max_mr_size_bytes and not implicit:
        raise OSError(errno.EINVAL, f"length: a region has at most {adapter.config.max_mr_size_bytes} bytes")


def reregister(adapter: Adapter, region: OnDemandRegion, pd: int, fields: Fields) -> None:
    """Change such a region; it stays one."""
    flags = fields["flags"]
    access = fields["access"] if flags & control.REREG_ACCESS else region.access
    moves = bool(flags & control.REREG_TRANSLATION)
    if not access & ON_DEMAND or (moves and fields["frames"]):
        raise OSError(errno.EOPNOTSUPP, "access, frames: a region on demand cannot become another kind")
    if moves:
        _check_length(adapter, fields)
    place = (fields["va"], fields["address"], fields["length"]) if moves else None
    reregister_on_demand(adapter.regions, region, pd, access, place)
