"""Text between markers in a file: what a run writes stays apart from what people write."""

from __future__ import annotations

from pathlib import Path

BEGIN = "<!-- {name}: written by make bench -->"
END = "<!-- end of {name} -->"


def between(text: str, name: str, new: str) -> str:
    """``text`` with what stands between the markers of ``name`` replaced; ValueError unless each is there
    once, in order."""
    begin, end = BEGIN.format(name=name), END.format(name=name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the markers {begin} and {end} must stand in the file, once each")
    first, last = text.index(begin) + len(begin), text.index(end)
    if first > last:
        raise ValueError(f"the markers of {name} stand in the wrong order")
    return f"{text[:first]}\n{new.strip()}\n{text[last:]}"


def write(path: Path, name: str, new: str) -> None:
    """Put ``new`` between the markers of ``name`` in the file ``path``."""
    path.write_text(between(path.read_text(), name, new))
