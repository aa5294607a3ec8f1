"""The replays use the transport tests' world: real queue pairs, rings, regions, and virtual time."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "transport"))
