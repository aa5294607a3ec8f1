"""Programs that tests start: same interpreter, same softhca, pipes for both directions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from machine_speed import limit_s

HERE = Path(__file__).parent
END_LIMIT_S = limit_s(30)


class Program:
    """A running program of this folder.  ``say`` writes a JSON line to it, ``hear`` reads one."""

    def __init__(self, name, *arguments, environment=None, errors=None, pass_fds=()):
        path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
        self.child = subprocess.Popen(
            [sys.executable, str(HERE / name), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, env={**os.environ, **(environment or {}), "PYTHONPATH": path}, text=True,
            pass_fds=pass_fds)

    @property
    def pid(self):
        return self.child.pid

    def say(self, **words):
        self.child.stdin.write(json.dumps(words) + "\n")
        self.child.stdin.flush()

    def hear(self):
        line = self.child.stdout.readline()
        assert line, f"the program ended with status {self.child.wait(END_LIMIT_S)}"
        return json.loads(line)

    def kill(self):
        self.child.kill()
        self.child.wait(END_LIMIT_S)

    def end(self):
        """Close its standard input and wait; its exit status."""
        if not self.child.stdin.closed:
            self.child.stdin.close()
        try:
            return self.child.wait(END_LIMIT_S)
        finally:
            self.child.kill()
            self.child.stdout.close()
