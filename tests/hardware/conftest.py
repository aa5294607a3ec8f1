"""The wire room's samples are what the blocks receive."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "wire"))
