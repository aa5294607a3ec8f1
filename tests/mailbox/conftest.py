"""Tests of mailboxes: over plain memory where they can be, over two adapters where they must."""

import importlib.util
import os

if importlib.util.find_spec("xxhash") is None and "SOFTHCA_EXPECT" not in os.environ:
    # An environment that was made before xxhash became a dependency; the whole run makes its own.
    collect_ignore_glob = ["test_*.py"]
