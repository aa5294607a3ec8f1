"""Parts of the preloaded object alone: files, identifiers, listeners, connections, groups, routes and devices
of its rdma_cm device, and its allocator's first moments."""

import re
import subprocess
from pathlib import Path

import pytest
from native_world import LIMIT_S

from softhca.native import build
from softhca.queues.header import header

HERE = Path(__file__).parent


def cases(name: str) -> list[str]:
    """What a program of these tests tries."""
    return re.findall(r'\{"([a-z-]+)", \w+\}', (HERE / f"{name}.c").read_text())


def compiled(folder: Path, name: str) -> Path:
    """A program that holds one of the object's sources whole."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    (folder / "softhca.h").write_text(header())
    (folder / "cm_states.h").write_text(build.states_header())
    flags = [each for each in build.WORDS if each not in ("-O2", "-fvisibility=hidden", "-fPIC")]
    flags += ["-O1", "-fno-builtin", "-Werror", f"-I{folder}", f"-I{build.SOURCES / 'preload'}"]
    source, made = HERE / f"{name}.c", folder / name
    subprocess.run([*command, *flags, str(source), "-ldl", "-o", str(made)], check=True)
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("preload"), "preload_files")


@pytest.mark.parametrize("case", cases("preload_files"))
def test_files(files: Path, case: str) -> None:
    done = subprocess.run([str(files), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def identifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("preload"), "preload_identifiers")


@pytest.mark.parametrize("case", cases("preload_identifiers"))
def test_identifiers(identifiers: Path, case: str) -> None:
    done = subprocess.run([str(identifiers), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("preload"), "preload_peers")


@pytest.mark.parametrize("case", cases("preload_peers"))
def test_peers(peers: Path, case: str) -> None:
    done = subprocess.run([str(peers), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("preload"), "preload_routes")


@pytest.mark.parametrize("case", cases("preload_routes"))
def test_routes(routes: Path, case: str) -> None:
    done = subprocess.run([str(routes), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_while_the_next_allocator_is_looked_up(tmp_path: Path) -> None:
    program = compiled(tmp_path, "preload_early")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
