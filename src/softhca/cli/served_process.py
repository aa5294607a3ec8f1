"""A process that serves as long as a command runs: an adapter's, or a fabric's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from softhca.cli.errors import CommandError

END_S = 10.0
"""A process that does not end within so long is killed."""


@contextlib.contextmanager
def served_process(
    words: Sequence[str], environment: Mapping[str, str], said: Path, what: str
) -> Iterator[None]:
    """While the block runs, so does ``python -m`` ``words``, which has printed ``ready`` before.

    It ends with the block, or with this process, whose end of its input closes.  What it says on stderr is
    in the file ``said`` until the end, and then on stderr.  CommandError ("no ``what``: …"): it cannot be.
    """
    with said.open("w") as errors:
        # In the caller's session, as `AdapterProcess` says.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *words], env=dict(environment), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            reason = said.read_text().strip().removeprefix("softhca: ")
            raise CommandError(f"no {what}: {reason or 'its process has ended'}")
        yield
        sys.stderr.write(said.read_text())
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
