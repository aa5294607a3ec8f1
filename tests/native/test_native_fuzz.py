"""Fixed inputs of the fuzzing of the library for programs in C, with sanitizers and without libFuzzer."""

import random
import subprocess

import fuzz_native
import pytest
from native_world import LIMIT_S, sanitizers

from softhca.native import build


@pytest.mark.parametrize("target", fuzz_native.TARGETS)
def test_the_seeds_do_no_harm(tmp_path, target):
    sanitizers()
    command, driver = [*build.compiler(), "-O0"], str(fuzz_native.HERE / "fuzz_main.c")
    program = fuzz_native.compiled(target, tmp_path, command, [driver])
    found = fuzz_native.spread(tmp_path / "seeds")
    some = [found[0], *random.Random(target).sample(found, 600)]
    done = subprocess.run([program, *some], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.splitlines()[-1] == str(some[-1])


def test_without_clang_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(fuzz_native.shutil, "which", lambda name: None)
    assert fuzz_native.main([]) == 3
    assert "needs clang" in capsys.readouterr().err
