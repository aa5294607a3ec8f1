"""The library for programs in C: a ``libibverbs.so.1`` that speaks the rings of an adapter process.

Its sources are C and stand beside this file; ``softhca.h``, which they include, is made of the tables of the
host interface (`softhca.queues.header`) when the library is built.  ``softhca run`` gives it to programs that
are linked with libibverbs; it needs nothing but libc, and finds its devices in ``SOFTHCA_DEVICES``
(docs/c-programs.md).
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "libibverbs.so.1"
PATHS_NAME = "libsofthca-paths.so"
"""Stands beside the library: gives programs that look for ``/dev/infiniband`` and ``/sys/class/infiniband``
themselves what stands for these."""

VARIABLE = "SOFTHCA_LIBIBVERBS"


def library() -> Path | None:
    """The library: the file that the variable SOFTHCA_LIBIBVERBS names, else the one that was installed with
    this package; None where there is none.
    """
    named = os.environ.get(VARIABLE, "")
    path = Path(named) if named else Path(__file__).resolve().with_name(NAME)
    return path.resolve() if path.is_file() else None
