"""Importing this module registers every cell of the matrix, in the order of its table."""

# ruff: noqa: I001
import interop_cells_rc
import interop_cells_windows
import interop_cells_unreliable
import interop_cells_refused
import interop_cells_transport
import interop_cells_mix
import interop_cells_programs
import interop_cells_connections
import interop_cells_netem
import interop_cells_failures

__all__ = [
    "interop_cells_connections",
    "interop_cells_failures",
    "interop_cells_mix",
    "interop_cells_netem",
    "interop_cells_programs",
    "interop_cells_rc",
    "interop_cells_refused",
    "interop_cells_transport",
    "interop_cells_unreliable",
    "interop_cells_windows",
]
