"""The tests of wire have samples of packets."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "wire"))
