"""The three designs of the search for a window's keys, by name: the one that was chosen, and two rejected."""

from __future__ import annotations

MANAGER, MICROCODE, FIXED = "remote-key manager", "microcode alone", "fixed hardware"
DESIGNS = (MANAGER, MICROCODE, FIXED)
SEARCHERS = {MANAGER: "remote-key manager", MICROCODE: "SQ engine", FIXED: "fixed hardware"}
"""Who searches in each of them."""
