"""Every enumeration of libibverbs as a class (``ibv_qp_state``), and every member also flat
(``IBV_QPS_RTS``).

The classes stand in three modules by subject; this one gathers them under the name that pyverbs uses.
"""

from enum import Enum
from typing import TYPE_CHECKING

from softhca.verbs import device_enums, extension_enums, queue_enums
from softhca.verbs.device_enums import *  # noqa: F403
from softhca.verbs.extension_enums import *  # noqa: F403
from softhca.verbs.queue_enums import *  # noqa: F403

IBV_LINK_LAYER_UNSPECIFIED = 0
IBV_LINK_LAYER_INFINIBAND = 1
IBV_LINK_LAYER_ETHERNET = 2

IBV_QPF_GRH_REQUIRED = 1

IBV_WC_STANDARD_FLAGS = 0x7F
"""All completion fields that every device delivers: byte_len … dlid_path_bits."""

IBV_ACCESS_OPTIONAL_RANGE = 0x3FF00000
"""Access bits that a device without the feature ignores instead of refusing."""

# pyverbs gives these C constants a leading underscore
_IBV_DEVICE_RAW_SCATTER_FCS = 1 << 34
_IBV_DEVICE_PCI_WRITE_END_PADDING = 1 << 36
_IBV_DEVICE_CC_DMA_BOUNCE = 1 << 41
_IBV_ALLOCATOR_USE_DEFAULT = (1 << 64) - 1
_IBV_ADVISE_MR_ADVICE_PREFETCH = 0
_IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1
_IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2
_IBV_ADVISE_MR_FLAG_FLUSH = 1


def _enumerations() -> list[type[Enum]]:
    return [
        value
        for module in (device_enums, queue_enums, extension_enums)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and issubclass(value, Enum)
    ]


for _enumeration in _enumerations():
    globals().update(_enumeration.__members__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> int:
        """Flat members, for type checkers."""
