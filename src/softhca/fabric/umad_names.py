"""By which names and ports programs of libumad2sim look for a fabric, and how many there may be."""

from __future__ import annotations

DEFAULT_NAME = "sim"
"""``IBSIM_SOCKNAME`` where nobody has set it."""
DEFAULT_PORT = 7070
MOST_SESSIONS = 10
"""So many programs the library's server knows; each has a socket of its own."""
