"""Which devices a command can name, without what only tests of two ends need."""

from __future__ import annotations

import ipaddress
import os
from typing import Any

from softhca.cli.errors import UsageError


def device_names() -> list[str]:
    """The names of this process's devices.  DeviceSpecificationError when ``SOFTHCA_DEVICES`` is wrong."""
    from softhca.runtime.specification import parse
    from softhca.verbs.device import get_device_list

    parse(os.environ.get("SOFTHCA_DEVICES", ""))
    names = (device.name for device in get_device_list())
    return [name.decode() if isinstance(name, bytes) else name for name in names]


def device_name(wanted: str = "") -> str:
    """The name of the device ``wanted``, or of the first one; :class:`UsageError` when there is none."""
    names = device_names()
    if not names:
        raise UsageError("there is no device")
    if wanted and wanted not in names:
        raise UsageError(f"there is no device {wanted!r}; devices: {', '.join(names)}")
    return wanted or names[0]


def gid_bytes(gid: Any) -> bytes:
    """The 16 bytes of a verbs GID."""
    return ipaddress.IPv6Address(str(getattr(gid, "gid", gid))).packed
