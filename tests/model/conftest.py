"""The models stand on what the tests of other rooms share: adapters in memory, and real traffic."""

import sys
from pathlib import Path

for room in ("adapter", "verbs"):
    sys.path.insert(0, str(Path(__file__).parent.parent / room))
