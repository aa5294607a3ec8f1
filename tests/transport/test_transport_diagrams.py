"""The document of the states is what the tables say."""

from __future__ import annotations

from pathlib import Path

from softhca.transport.diagrams import mermaid, page
from softhca.transport.states import NAMES, TRANSITIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "states.md"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text() == page()


def test_every_transition_is_drawn() -> None:
    drawn = mermaid()
    for current, target in TRANSITIONS:
        assert f"{NAMES[current]} --> {NAMES[target]}:" in drawn
    assert all(f"{name} --> ERR:" in drawn for name in NAMES if name != "ERR")
