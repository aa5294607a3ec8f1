"""Parts of the preloaded object alone: files, identifiers, listeners, connections, groups, routes and devices
of its rdma_cm device, and its allocator's first moments."""

import subprocess
from pathlib import Path

import pytest
from native_world import LIMIT_S, part, parts_cases


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("preload"), "preload_files")


@pytest.mark.parametrize("case", parts_cases("preload_files"))
def test_files(files: Path, case: str) -> None:
    done = subprocess.run([str(files), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def identifiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("preload"), "preload_identifiers")


@pytest.mark.parametrize("case", parts_cases("preload_identifiers"))
def test_identifiers(identifiers: Path, case: str) -> None:
    done = subprocess.run([str(identifiers), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("preload"), "preload_peers")


@pytest.mark.parametrize("case", parts_cases("preload_peers"))
def test_peers(peers: Path, case: str) -> None:
    done = subprocess.run([str(peers), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("preload"), "preload_routes")


@pytest.mark.parametrize("case", parts_cases("preload_routes"))
def test_routes(routes: Path, case: str) -> None:
    done = subprocess.run([str(routes), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("preload"), "preload_commands")


@pytest.mark.parametrize("case", parts_cases("preload_commands"))
def test_commands(commands: Path, case: str) -> None:
    done = subprocess.run([str(commands), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def status(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("preload"), "preload_status")


@pytest.mark.parametrize("case", parts_cases("preload_status"))
def test_status_of_files_with_any_libc(status: Path, case: str, tmp_path: Path) -> None:
    """glibc has functions named stat and fstat since 2.33; programs that an older one linked call others."""
    place = tmp_path / "class" / "infiniband" / "x"
    place.mkdir(parents=True)
    (place / "name").write_text("found\n")
    (place / "link").symlink_to("name")
    words = [str(status), case, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_while_the_next_allocator_is_looked_up(tmp_path: Path) -> None:
    program = part(tmp_path, "preload_early")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
