"""``python -m softhca`` is the command ``softhca``."""

import sys

from softhca.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
