"""The flat names of ``libibverbs_enums`` under the module name that rdma-core up to 44 gave them."""

from typing import TYPE_CHECKING

from softhca.verbs import libibverbs_enums

globals().update(
    {
        name: value
        for name, value in vars(libibverbs_enums).items()
        if name.startswith(("IBV_", "_IBV_", "ibv_"))
    }
)

if TYPE_CHECKING:
    from softhca.verbs.libibverbs_enums import *  # noqa: F403

    def __getattr__(name: str) -> int:
        """Flat members, for type checkers."""
