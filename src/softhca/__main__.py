"""``python -m softhca`` is the command ``softhca``."""

import sys

from softhca.cli.entry import command

if __name__ == "__main__":
    sys.exit(command())
