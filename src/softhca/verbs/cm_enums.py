"""The flat names of ``librdmacm_enums`` under the module name that rdma-core up to 44 gave them."""

from typing import TYPE_CHECKING

from softhca.verbs import librdmacm_enums

globals().update(
    {
        name: value
        for name, value in vars(librdmacm_enums).items()
        if name.startswith(("RDMA_", "RAI_", "rdma_"))
    }
)

if TYPE_CHECKING:
    from softhca.verbs.librdmacm_enums import *  # noqa: F403

    def __getattr__(name: str) -> int:
        """Flat members, for type checkers."""
