"""The wire room has samples of packets; the adapter's scheduler takes real queue pairs."""

import sys
from pathlib import Path

for room in ("wire", "adapter"):
    sys.path.append(str(Path(__file__).parent.parent / room))
