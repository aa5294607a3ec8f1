"""The tests of the driver stand on the same two adapters in memory as those of the adapter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "adapter"))
