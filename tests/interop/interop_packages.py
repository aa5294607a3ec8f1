"""Debian packages for the guest, fetched by apt with a state of its own: this machine's packages do not
matter, and nothing is installed on it.  Which mirror serves them is read from apt's own configuration.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CODENAME = "bookworm"
BACKPORTS = f"{CODENAME}-backports"
USERLAND = (
    "busybox-static",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "perftest",
    "python3-pyverbs",
    "rdma-core",
    "rdmacm-utils",
)
KERNELS = {"6.1": CODENAME, "6.12": BACKPORTS}
"""Kernel series → suite that has it."""

_FETCH_S = 600


class Unavailable(Exception):
    """The guest cannot be had here; the text is one line that says why."""


def _run(argv: list[str], environment: dict[str, str] | None = None, folder: Path | None = None) -> str:
    """Output of a command.  Raises :class:`Unavailable` with the last line that it said."""
    try:
        done = subprocess.run(
            argv, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=_FETCH_S
        )
    except FileNotFoundError:
        raise Unavailable(f"there is no {argv[0]}") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{argv[0]} took longer than {_FETCH_S} s") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()
        raise Unavailable(f"{argv[0]} {argv[1]}: {said[-1]}")
    return done.stdout


class Archive:
    """Debian's archive, as this machine's apt reaches it, with lists and packages below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives = folder / "archives"
        for name in ("lists/partial", "archives/partial", "nothing/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text("")
        self.backports = False
        self.backports_reason = ""

    def update(self) -> None:
        """Read the lists anew.  Raises :class:`Unavailable`."""
        base = self._own_lines()
        mirror = base[0].split()[-3]
        self._write(base)
        self._apt("update", "-q")
        more = self._line(mirror, BACKPORTS)
        self._write([*base, more])
        try:
            self._apt("update", "-q", "-o", "APT::Update::Error-Mode=any")
            self.backports = True
        except Unavailable as error:
            self.backports_reason = str(error)
            self._write(base)
            self._apt("update", "-q")

    def kernel_package(self, suite: str) -> str:
        """The package of the newest kernel of ``suite``."""
        told = self._cache(
            "depends", f"linux-image-amd64/{suite}" if suite == BACKPORTS else "linux-image-amd64"
        )
        found = re.search(r"Depends: (linux-image-\S+)", told)
        if found is None:
            raise Unavailable(f"{suite} has no linux-image-amd64")
        return found[1]

    def closure(self, names: tuple[str, ...]) -> list[Path]:
        """Fetch ``names`` and all that they depend on; the files, sorted."""
        options = ["-y", "--no-install-recommends", "-o", "Debug::NoLocking=true"]
        # what is fetched already would not be listed
        nowhere = f"Dir::Cache::archives={self.folder / 'nothing'}"
        listed = self._apt("install", "--print-uris", "-qq", "-o", nowhere, *options, *names)
        self._apt("install", "--download-only", "-qq", *options, *names)
        return sorted(self.archives / line.split()[1] for line in listed.splitlines() if line.startswith("'"))

    def fetch(self, name: str) -> Path:
        """Fetch one package without its dependencies."""
        listed = self._apt("download", "--print-uris", "-qq", name)
        path = self.archives / listed.split()[1]
        if not path.exists():
            _run(["apt-get", "download", "-qq", name], self._environment(), self.archives)
        return path

    def _own_lines(self) -> list[str]:
        """This suite and its security updates, in the words of a sources list."""
        form = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"
        told = _run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
        repositories = [line.split() for line in dict.fromkeys(told.splitlines())]
        lines = [
            self._line(uri, codename)
            for wanted in (CODENAME, f"{CODENAME}-security")
            for uri, codename, component, origin in (row for row in repositories if len(row) == 4)
            if (codename, component, origin) == (wanted, "main", "Debian")
        ]
        if not lines:
            raise Unavailable(f"apt knows no Debian {CODENAME} here")
        return lines

    @staticmethod
    def _line(uri: str, suite: str) -> str:
        return f"deb [signed-by={KEYRING}] {uri} {suite} main"

    def _write(self, lines: list[str]) -> None:
        (self.folder / "sources.list").write_text("\n".join(lines) + "\n")
        settings = {
            "Dir::State": self.folder, "Dir::State::status": self.folder / "status",
            "Dir::State::lists": self.folder / "lists", "Dir::Cache": self.folder,
            "Dir::Etc::sourcelist": self.folder / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null", "Acquire::Languages": "none",
        }  # fmt: skip
        if os.geteuid() == 0:
            settings["APT::Sandbox::User"] = "root"
        (self.folder / "apt.conf").write_text(
            "".join(f'{key} "{value}";\n' for key, value in settings.items())
        )

    def _environment(self) -> dict[str, str]:
        return os.environ | {"APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C"}

    def _apt(self, *words: str) -> str:
        return _run(["apt-get", *words], self._environment())

    def _cache(self, *words: str) -> str:
        return _run(["apt-cache", *words], self._environment())
