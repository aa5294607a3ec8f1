"""Programs in C on the library: an adapter process, the library, and Debian's own binaries beside it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from kills import resources

from machine_speed import limit_s
from softhca.native import PATHS_NAME, build, library
from softhca.queues.header import header

LIMIT_S = limit_s(60)
CASES = ["extended", "threads", "forks", "events", "resets", "unmapped", "unmappable", "refusals",
         "device_memory", "advice", "rate_limit", "rnr_timers", "states", "buffers",
         "allocators", "null_regions", "flows", "scaling", "handed_out", "hints"]  # fmt: skip
"""What ``verbs_client`` tries."""
CM_CASES = [
    "refusals", "types", "descriptors", "garbage", "connections", "timewait", "refused", "datagrams",
    "families", "threads", "tries", "untaken", "displaced", "written",
]  # fmt: skip
"""What ``rdmacm_client`` tries with sanitizers.  Not forks: a child of a program with threads may find the
sanitizers' own locks taken for ever (GCC 12)."""
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O0")
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1"
SANITIZED = "SOFTHCA_TEST_SANITIZED"
"""Where this variable is set, all that is made of C here has `SANITIZERS`, and all programs run so."""
LISTENS_NOT = re.compile("REJECTED[,;] error:? 8|UNREACHABLE[,;] error: 1|Connection refused|"
                         "CM event bl blka 8|rpoll: ")  # fmt: skip
"""What a program says whose peer does not listen yet."""
SECOND_LISTENS_NOT = "Failed to connect RDMA CM events"
"""What perftest says whose peer took the first of its two connections and does not listen for the second one
yet: its two ends synchronise before the server listens, so that the client may be first, on every fabric."""

CHANNEL_CLOSED = "rdma_get_cm_event: Bad file descriptor"
"""What rping says where its thread for events asks for one more after its other one, which ends, has closed
their channel: a race of its own, with the kernel's device, too.  Its exit status is not 0 then."""


def built(folder: Path) -> Path:
    """The library: the installed one, or one that is compiled now, with `SANITIZERS` where `SANITIZED`."""
    if SANITIZED in os.environ:
        return library_made(folder, SANITIZERS)
    found = library()
    return library_made(folder, ("-Werror",)) if found is None else found


def library_made(folder: Path, flags: Sequence[str]) -> Path:
    """The library in ``folder``, and the object beside it, compiled with ``flags`` by whoever comes first."""
    if build.compiler() is None:
        pytest.skip("there is no C compiler")
    target = folder / "libibverbs.so.1"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.with_name(PATHS_NAME).exists():  # the last that is put there
            build.build(target, flags)
    return target


def compiled_client(
    library_path: Path, folder: Path, name: str = "verbs_client", flags: Sequence[str] = ()
) -> Path:
    """``verbs_client.c`` or another one, linked with the library; ``flags`` are for the compiler."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    source = Path(__file__).with_name(f"{name}.c")
    if SANITIZED in os.environ:
        flags = (*flags, *SANITIZERS)
    subprocess.run([*command, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{build.SOURCES}",
                    f"-I{build.SOURCES / 'preload'}", str(source), "-o", str(folder / name),
                    str(library_path), *flags], check=True)  # fmt: skip
    return folder / name


def parts_cases(name: str) -> list[str]:
    """What a program tries that holds sources of the library or of the object beside it whole."""
    return re.findall(r'\{"([a-z-]+)", \w+\}', Path(__file__).with_name(f"{name}.c").read_text())


def part(folder: Path, name: str) -> Path:
    """Such a program, compiled in ``folder``."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    (folder / "softhca.h").write_text(header())
    (folder / "cm_states.h").write_text(build.states_header())
    flags = [each for each in build.WORDS if each not in ("-O2", "-fvisibility=hidden", "-fPIC")]
    flags += ["-O1", "-fno-builtin", "-Werror", f"-I{folder}", f"-I{build.SOURCES}",
              f"-I{build.SOURCES / 'preload'}"]  # fmt: skip
    source, made = Path(__file__).with_name(f"{name}.c"), folder / name
    subprocess.run([*command, *flags, str(source), "-ldl", "-o", str(made)], check=True)
    return made


def sanitizers() -> list[str]:
    """The compiler's libraries of AddressSanitizer and UBSan, to be preloaded."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    asked = [subprocess.run([*command, f"-print-file-name={name}"], capture_output=True, text=True)
             for name in ("libasan.so", "libubsan.so")]  # fmt: skip
    found = [done.stdout.strip() for done in asked]
    if not all(map(os.path.isabs, found)):
        pytest.skip("the C compiler has no sanitizers")
    return found


def sanitized_library(folder: Path) -> dict[str, str]:
    """The library and the object beside it, made in ``folder`` with sanitizers, and what a program is told
    that is given them.
    """
    made = library_made(folder, SANITIZERS)
    objects = (str(made), str(made.with_name(PATHS_NAME)))
    return {"LD_PRELOAD": " ".join((*sanitizers(), *objects)), "ASAN_OPTIONS": ASAN_OPTIONS}


def checked() -> dict[str, str]:
    """What `softhca run` is told whose programs are to run with sanitizers where `SANITIZED` is set."""
    return {"LD_PRELOAD": " ".join(sanitizers())} if SANITIZED in os.environ else {}


def needs(*programs: str) -> None:
    """Skip the test where one of Debian's programs is not installed."""
    packages = {"ibv": "ibverbs-utils", "ib": "perftest", "rping": "rdmacm-utils", "ucx": "ucx-utils",
                "stdbuf": "coreutils", "io": "ucx-utils", "fi": "libfabric-bin",
                "ip": "iproute2", "iperf": "iperf", "mpirun": "openmpi-bin", "mpicc": "libopenmpi-dev"}
    for name in programs:
        if shutil.which(name) is None:
            package = packages.get(name.partition("_")[0], "rdmacm-utils")
            pytest.skip(f"{name} is not installed (Debian's {package})")


def preload(library_path: Path, *others: str | Path) -> str:
    """What gives a program the library, what stands beside it, and others behind them."""
    ours = (library_path, library_path.with_name(PATHS_NAME))
    return " ".join(map(str, (*checked().values(), *ours, *others)))


class World:
    """An adapter process on ``address``, and programs that are its clients; all of them are started by the
    command ``prefix``.  ``entry``: what Python is told to run as the adapter process.
    """

    def __init__(
        self,
        library_path: Path,
        address: str,
        options: str = "",
        prefix: tuple[str, ...] = (),
        entry: tuple[str, ...] = ("-m", "softhca.runtime.process_main"),
    ) -> None:
        self.prefix = prefix
        self.socket = f"@softhca-native-{os.getpid()}-{secrets.token_hex(4)}"
        self.library = library_path
        self._address = ""
        path = os.pathsep.join(filter(None, sys.path))
        self.adapter = subprocess.Popen(
            [*prefix, sys.executable, "-P", *entry, f"softhca0=udp:{address}{options}",
             "--listen", self.socket, "--stay"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, text=True,
        )  # fmt: skip
        if self.adapter.stdout.readline() != "ready\n":
            self.end()
            raise AssertionError("no adapter process")
        self.environment = {
            **os.environ,
            "LD_PRELOAD": preload(library_path),
            "SOFTHCA_DEVICES": f"softhca0=unix:{self.socket}",
            "SOFTHCA_DEBUG": "1",
        }

    def close(self) -> None:
        """The adapter process ends as it should."""
        assert self.end() == 0

    def end(self) -> int:
        """End the adapter process in whatever state it is; its exit status."""
        self.adapter.stdin.close()
        try:
            return self.adapter.wait(LIMIT_S)
        finally:
            self.adapter.kill()
            self.adapter.stdout.close()

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            [*self.prefix, *command],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
            env={**self.environment, **variables},
        )

    @property
    def address(self) -> str:
        """The device's IP address."""
        if not self._address:
            found = re.search(r"::ffff:(\S+),", self.run("ibv_devinfo", "-v").stdout)
            assert found is not None
            self._address = found[1]
        return self._address

    def start(
        self,
        *command: str,
        pass_fds: tuple[int, ...] = (),
        stdin: int = subprocess.DEVNULL,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start a program whose words, of both kinds, come from its ``stdout``; it inherits ``pass_fds``, and
        reads ``stdin``, which is a descriptor or as of ``subprocess.Popen``.
        """
        return subprocess.Popen(
            [*self.prefix, *command],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**self.environment, **variables},
            pass_fds=pass_fds,
        )

    def pair(self, port: int, *command: str, **variables: str) -> tuple[str, str]:
        """Run a program as server and as client of it, by its own exchange on TCP ``port``; what both
        said.
        """
        told = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
            "env": self.environment,
        }
        with subprocess.Popen([*command, "-p", str(port)], **told) as passive:
            try:
                if "-R" in command:
                    await_rdma_listener(self, passive)
                else:
                    await_listener(port, passive)
                active = self.run(*command, "-p", str(port), "127.0.0.1", **variables)
                said, _ = passive.communicate(timeout=LIMIT_S)
            except BaseException:
                passive.kill()
                raise
        assert active.returncode == 0, active.stdout + active.stderr + said
        assert passive.returncode == 0, said
        return said, active.stdout


def await_listener(port: int, process: subprocess.Popen[str], within_s: float = LIMIT_S) -> None:
    """Return when somebody listens on TCP ``port``; fails where ``process`` ends before, or it takes longer.
    """
    wanted, end_s = f":{port:04X} ", time.monotonic() + within_s
    while process.poll() is None:
        for table in (f"/proc/{process.pid}/net/tcp", f"/proc/{process.pid}/net/tcp6"):
            try:
                lines = Path(table).read_text().splitlines()
            except OSError:  # it has ended meanwhile, or its system has no such addresses
                lines = []
            if any(wanted in line and line.split()[3] == "0A" for line in lines):
                return
        if time.monotonic() > end_s:
            raise AssertionError(f"nobody listens on TCP port {port}")
        os.sched_yield()
    raise AssertionError(process.stdout.read() if process.stdout else "it has ended")


def await_rdma_listener(world: World, process: subprocess.Popen[str]) -> None:
    """Return when the adapter of ``world`` has what `process` listens with by the RDMA CM, or has ended.  A
    client of many connections that comes before has some of them refused; its server waits for these."""
    end_s = time.monotonic() + LIMIT_S
    while not world.prefix and process.poll() is None and not resources(world.socket).get("CM"):
        if time.monotonic() > end_s:
            raise AssertionError("nobody listens by the RDMA CM")
        os.sched_yield()


def ended(program: subprocess.Popen[str]) -> str:
    """What a program said that ends by itself, and well."""
    said, _ = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 0 or CHANNEL_CLOSED in said, said
    return said


class PeerLostError(Exception):
    """A client has gone for which its server waits: both begin anew."""


def asked(world: World, server: subprocess.Popen[str], *command: str, **variables: str) -> str:
    """What a client says, which begins anew while ``server`` does not listen yet."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        client = world.start(*command, **variables)
        said, _ = client.communicate(timeout=LIMIT_S)
        if client.returncode == 0:
            return said
        if SECOND_LISTENS_NOT in said:
            raise PeerLostError(said)
        assert LISTENS_NOT.search(said), said
        if server.poll() is not None:  # it listened between two connections of one client, which has gone
            raise PeerLostError(f"{said}\n{server.stdout.read()}")
    raise AssertionError(said)


def both(
    world: World,
    other: World,
    server: Sequence[str],
    client: Sequence[str],
    tcp_port: int = 0,
    **variables: str,
) -> tuple[str, str]:
    """Run a program against another one, which begins when it listens, first at ``tcp_port`` where that is
    said; what both said."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        with world.start(*server, **variables) as passive:
            try:
                if tcp_port:
                    await_listener(tcp_port, passive)
                else:
                    await_rdma_listener(world, passive)
                active = asked(other, passive, *client, **variables)
                return ended(passive), active
            except PeerLostError:
                passive.kill()
                if time.monotonic() > end_s:
                    raise
            except BaseException:
                passive.kill()
                raise
