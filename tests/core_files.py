"""What a core file of a process would have of its shared mappings."""

from __future__ import annotations

import re
from pathlib import Path

MOST_BYTES = 64 << 20
"""No process of ours has more."""
AREA = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)$")


def dumped_bytes(pid: int) -> dict[str, int]:
    """Bytes of shared mappings that a core file would have, by what is mapped."""
    found: dict[str, int] = {}
    name, size = "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if area := AREA.match(line):
            name, size = area[3], int(area[2], 16) - int(area[1], 16)
        elif line.startswith("VmFlags:") and "sh" in (flags := line.split()[1:]) and "dd" not in flags:
            found[name] = found.get(name, 0) + size
    return found
