"""The first minute on a bare machine: Debian 12 with nothing but the packages that the README names.

    python tests/bare/bare.py [--arch arm64] [--whole | --sample | --demo | --wheel FILE] [--root FOLDER]
                              [--log FILE] [--share PATH …]

Needs root, debootstrap, and qemu-user-static for another processor than this machine's.  Below ``/tmp`` it
makes a Debian 12, installs the packages of the README's "Two commands", and there root and then an ordinary
user each clone what is committed here and type the README's commands: ``make demo`` and ``make test``.  The
folder and all mounts are gone at the end, but a ``--root`` stays, and the next trial takes it as it is, with
its packages, and fresh clones.  Status 1 when a command failed.

``--sample`` (the default) gives ``make test`` a few folders of tests, ``--whole`` all, ``--demo`` none.
Emulated, where a build of all modules takes more than an hour, it is plain Python and then the modules of a
few folders that are tried instead (``EMULATED``).  ``--wheel`` installs a wheel instead, and runs what is
in the clone against that (``INSTALLED``).

How the machine reaches packages is its own affair: its resolver, its certificates and pip's settings are
lent to the bare one, as are folders that ``--share`` names, and nothing of them is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
USER = "newcomer"
SAMPLE = ("tests/machine", "tests/queues", "tests/memory", "tests/links", "tests/wire/test_wire_tshark.py",
          "tests/cli/test_cli_main.py", "tests/cli/test_cli_doctor.py", "tests/cli/test_cli_run.py",
          "tests/native/test_native_programs.py", "tests/runtime/test_runtime_pair.py")  # fmt: skip
"""Every rung: bytes, memory, rings, sockets, processes, and programs in C."""
PARALLEL = "-n auto --dist loadfile --no-loadscope-reorder"
EMULATED = (
    "python3 -m venv env",
    "env/bin/python -m pip install -q 'setuptools>=77,<90' 'Cython>=3.3,<4' 'isal>=1.7,<2'",
    "SOFTHCA_EXT=skip env/bin/python -m pip install -q --no-build-isolation . pytest pytest-timeout"
    " hypothesis numpy scapy",
    "env/bin/softhca devinfo",
    "env/bin/python examples/first.py",
    "env/bin/softhca run -n 2 -- env/bin/python examples/rc_write.py",
    "SOFTHCA_EXPECT=interpreted env/bin/python -m pytest -q tests/machine tests/queues tests/wire",
    "SOFTHCA_ONLY=machine,wire,queues env/bin/python setup.py -q build --build-base own --build-lib own/lib",
    "PYTHONPATH=own/lib env/bin/python -c 'from softhca.wire import icrc; print(icrc.__file__)'",
    "PYTHONPATH=own/lib env/bin/python examples/first.py",
    "PYTHONPATH=own/lib env/bin/softhca run -n 2 -- env/bin/python examples/rc_write.py",
    "PYTHONPATH=own/lib env/bin/python -m pytest -q tests/machine tests/queues tests/wire",
)
"""What is tried on an emulated processor: interpreted, and with the modules of three folders compiled."""
INSTALLED = (
    "python3 -m venv env",
    "env/bin/python -m pip install -q ./{wheel} pytest pytest-timeout hypothesis numpy scapy pyyaml",
    "env/bin/softhca devinfo",
    "env/bin/python examples/first.py",
    "env/bin/softhca run -n 2 -- env/bin/python examples/rc_write.py",
    "SOFTHCA_EXPECT=compiled env/bin/python -m pytest -q tests/machine tests/queues tests/wire"
    " tests/transport/test_transport_rc_operations.py",
)
"""What is tried of a wheel: its modules are compiled, on an emulated processor too."""
LENT = ("/etc/resolv.conf", "/etc/pip.conf", "/root/.config/pip/pip.conf", "/root/.pip/pip.conf",
        "/etc/ssl/certs/ca-certificates.crt")  # fmt: skip
LENT_VARIABLES = re.compile(r"PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:(?:https?|no)_proxy)")
HANDLERS = Path("/proc/sys/fs/binfmt_misc")
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
EMULATORS = {"arm64": "aarch64", "amd64": "x86_64"}
LENT_AND_ABSENT = re.compile(r"WARNING: Location '\S+' is ignored")
"""What pip says of places that its lent settings name."""
DOTS = re.compile(r"[.sx]+ *\[")
PROGRESS = re.compile(r"\[ *\d+/")
Done = subprocess.CompletedProcess[str]


def packages_of(readme: str) -> list[str]:
    """The Debian packages that the README asks for in front of its two commands.

    ``On a fresh Debian 12 (python3 ≥ 3.11 with venv and python3-dev, gcc, make):``
    """
    said = re.search(r"^On a fresh Debian 12 \(([^)]*)\)", readme, re.MULTILINE)
    if said is None:
        raise SystemExit("bare: the README no longer says what a fresh Debian 12 needs")
    names: list[str] = []
    for word in re.findall(r"[a-z][a-z0-9+.-]*", said[1]):
        name = {"venv": "python3-venv"}.get(word, word)
        if word not in ("with", "and") and name not in names:
            names.append(name)
    return names


def commands_of(how: str, wheel: Path | None = None) -> list[str]:
    """What somebody types in the clone: the README's two commands, or what tries a ``wheel`` there."""
    if wheel is not None:
        return [command.format(wheel=wheel.name) for command in INSTALLED]
    if how == "emulated":
        return list(EMULATED)
    commands = ["make demo"]
    if how == "whole":
        commands.append("make test")
    elif how == "sample":  # tools of other projects belong to the whole
        commands.append(f"make test TEST_TOOLS= PARALLEL='{PARALLEL} {' '.join(SAMPLE)}'")
    return commands


def lent_variables() -> dict[str, str]:
    """What of this process's environment says where packages come from."""
    return {name: value for name, value in os.environ.items() if LENT_VARIABLES.match(name)}


class Bare:
    """A Debian 12 in a folder, with what it is lent, and a log of what is done in it."""

    def __init__(self, root: Path, arch: str, log: list[str]) -> None:
        self.root, self.arch, self.failed = root, arch, False
        self._log = log

    def say(self, text: str) -> None:
        """A line for who watches, and for the log."""
        print(text, flush=True)
        self._log.append(text)

    def make(self, foreign: bool) -> None:
        """Unpack Debian; the second half of a foreign one runs emulated."""
        began = time.monotonic()
        halves = ["--foreign"] if foreign else []
        words = ["debootstrap", "--variant=minbase", f"--arch={self.arch}", *halves, SUITE, str(self.root)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        if foreign:
            second = ["/debootstrap/debootstrap", "--second-stage"]
            self._chroot(second, stdout=subprocess.DEVNULL, check=True)
        self.say(f"Debian 12 ({self.arch}), bare: {time.monotonic() - began:.0f} s")

    def mount(self, shared: list[str]) -> None:
        """What programs expect to be mounted, and the folders that are shared."""
        for path in ("/proc", "/dev", "/dev/pts", "/dev/shm", *shared):
            target = self.root / path[1:]
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--bind", path, str(target)], check=True)

    def lend(self) -> None:
        """This machine's way to packages; again where installing has put files of its own there."""
        for path in map(Path, LENT):
            if path.exists():
                target = self.root / str(path)[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target, follow_symlinks=True)

    def install(self, packages: list[str]) -> None:
        """As root, with apt-get."""
        began = time.monotonic()
        self._chroot(["apt-get", "update", "-q"], check=True, stdout=subprocess.DEVNULL)
        words = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
        self._chroot(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.say(f"apt-get install {' '.join(packages)}: {time.monotonic() - began:.0f} s")

    def clone(self, user: str) -> Path:
        """What is committed here, in the user's home; by way of a bare copy, so that no file is shared, and
        without what was committed before."""
        home = Path("/root") if user == "root" else Path("/home") / user
        if user != "root" and not (self.root / str(home)[1:]).exists():
            self._chroot(["useradd", "--create-home", user], check=True)
        quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "clone", "--bare", "--depth", "1", ROOT.as_uri(), folder], **quiet)
            target = self.root / str(home)[1:] / "softhca"
            if target.exists():  # an earlier trial's
                shutil.rmtree(target)
            subprocess.run(["git", "clone", "--no-local", folder, str(target)], **quiet)
        self._chroot(["chown", "-R", user, str(home)], check=True)
        return home / "softhca"

    def type(self, user: str, place: Path, command: str) -> None:
        """One command in the clone; its last lines go to the log."""
        began, shown = time.monotonic(), command if len(command) < 90 else f"{command[:86]} …"
        self.say(f"{user}$ {shown}")
        words = ["su", "--preserve-environment", "--shell", "/bin/sh", user, "-c", f"cd {place} && {command}"]
        heard = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = self._chroot(words, place.parent, **heard)
        lines = [line for line in done.stdout.splitlines() if line.strip() and not DOTS.match(line)]
        for line in lines if done.returncode == 0 and "demo" in command else lines[-25:]:
            if not PROGRESS.match(line) and not LENT_AND_ABSENT.match(line):
                self.say(f"    {line}")
        self.say(f"    status {done.returncode}, {time.monotonic() - began:.0f} s")
        self.failed |= done.returncode != 0

    def _chroot(self, words: list[str], home: Path = Path("/root"), **options: Any) -> Done:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
                       "DEBIAN_FRONTEND": "noninteractive", **lent_variables()}  # fmt: skip
        return subprocess.run(["chroot", str(self.root), *words], env=environment, **options)


@contextlib.contextmanager
def emulated(arch: str) -> Iterator[bool]:
    """While it lasts, the kernel gives programs of another processor to qemu, as binfmt-support lets it."""
    if PROCESSORS.get(platform.machine()) == arch:
        yield False
        return
    name = f"qemu-{EMULATORS[arch]}"
    handler = HANDLERS / name
    if not (HANDLERS / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", str(HANDLERS)], check=True)
    ours = not handler.exists()
    if ours:
        (HANDLERS / "register").write_text(Path(f"/usr/lib/binfmt.d/{name}.conf").read_text().strip())
    try:
        yield True
    finally:
        if ours:
            handler.write_text("-1")


def trial(args: argparse.Namespace, log: list[str]) -> bool:
    """All of it, in a mount namespace of its own; whether every command succeeded."""
    with emulated(args.arch) as foreign, tempfile.TemporaryDirectory(prefix="softhca-bare-") as folder:
        root = args.root or Path(folder) / "debian"
        bare = Bare(root, args.arch, log)
        fresh = not root.exists()
        if fresh:
            bare.make(foreign)
        try:
            bare.mount(args.share)
            bare.lend()
            if fresh:
                bare.install(packages_of((ROOT / "README.md").read_text()))
                bare.lend()
            else:
                bare.say(f"Debian 12 ({args.arch}) with its packages, of an earlier trial")
            for user in args.user:
                commands = commands_of("emulated" if foreign else args.how, args.wheel)
                place = bare.clone(user)
                if args.wheel:
                    shutil.copy(args.wheel, bare.root / str(place)[1:])
                for command in commands:
                    bare.type(user, place, command)
        finally:
            unmount(root)
    return not bare.failed


def unmount(root: Path) -> None:
    """Take away every mount below the folder, the deepest first: what is deleted then is its own."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted((each for each in points if each.startswith(f"{root}/")), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True)


def arguments(words: list[str]) -> argparse.Namespace:
    """The command line."""
    here = PROCESSORS.get(platform.machine(), platform.machine())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    for name in ("sample", "whole", "demo"):
        how.add_argument(f"--{name}", dest="how", action="store_const", const=name, default="sample")
    how.add_argument("--wheel", type=Path, metavar="FILE", help="try this wheel instead of a build")
    parser.add_argument("--arch", default=here, choices=sorted(EMULATORS))
    parser.add_argument("--user", action="append", choices=["root", USER], help="default: root, then a user")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="made if it is absent, and kept")
    parser.add_argument("--share", action="append", default=[], metavar="PATH", help="a folder lent to it")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write what was seen there too")
    args = parser.parse_args(words)
    args.user = args.user or ["root", USER]
    args.root = args.root and args.root.resolve()
    return args


def main() -> int:
    """Run the trial; the status of the command."""
    args = arguments(sys.argv[1:])
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("bare: needs root and debootstrap", file=sys.stderr)
        return 2
    if os.environ.get("SOFTHCA_BARE_APART") != "1":  # no mount is seen outside, nor stays when this is killed
        os.environ["SOFTHCA_BARE_APART"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was made is taken away then, too
    log: list[str] = []
    try:
        return 0 if trial(args, log) else 1
    finally:
        if args.log:
            args.log.write_text("\n".join(log) + "\n")


if __name__ == "__main__":
    sys.exit(main())
