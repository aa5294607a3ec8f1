"""The models stand on what the tests of the verbs share: real traffic."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "verbs"))
