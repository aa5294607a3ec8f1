"""softhca: a whole InfiniBand in user space.

What it has to say goes to the logger ``softhca`` and its children, silent until a program sets logging up.
"""

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softhca.channels import AsyncChannel as AsyncChannel
    from softhca.channels import Channel as Channel
    from softhca.channels import ChannelOptions as ChannelOptions

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    # Compiled modules take their locks, and look at rings, between two points at which it may change hands.
    raise ImportError(
        "softhca needs the interpreter lock, which this interpreter runs without: start it with PYTHON_GIL=1 "
        "in the environment (or -X gil=1)"
    )

logging.getLogger(__name__).addHandler(logging.NullHandler())

_CHANNELS = ("AsyncChannel", "Channel", "ChannelOptions")


def __getattr__(name: str) -> Any:
    """What people need most, imported when it is asked for."""
    if name not in _CHANNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from softhca import channels

    return getattr(channels, name)
