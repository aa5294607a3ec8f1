"""Inputs of the fuzzing of the library for programs in C, and some that dice make of them, with the C
compiler's sanitizers and without libFuzzer.
"""

import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

import fuzz_native
import pytest
from native_world import LIMIT_S, sanitizers

from softhca.native import build

SOME = 600
"""Of the seeds, and as many of what is made of them."""
DRIVER = str(fuzz_native.HERE / "fuzz_main.c")
SAYS = """
    #include <stdio.h>
    int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
    {
        for (size_t i = 0; i < bytes; i++)
            fprintf(stderr, "%02x", data[i]);
        fputc('\\n', stderr);
        return 0;
    }
"""
"""Says every input that it is given."""
HANGS = """
    int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long bytes)
    {
        for (volatile unsigned long i = bytes; i && *data == 'h'; i++)
            ;
        return 0;
    }
"""
"""Does not end where an input begins with h."""


def driven(folder: Path, text: str, *flags: str) -> Path:
    """The program of ``fuzz_main.c`` with an entry whose C is ``text``; ``flags`` are for the compiler."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    source, program = folder / "entry.c", folder / "entry"
    source.write_text(text)
    subprocess.run([*command, *flags, str(source), DRIVER, "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where what several targets are made of is compiled once."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def found(place):
    """The seeds, as files."""
    return fuzz_native.spread(place / "seeds")


@pytest.mark.parametrize("target", fuzz_native.TARGETS)
def test_inputs_do_no_harm(place, found, tmp_path, target):
    sanitizers()
    program = fuzz_native.compiled(target, place, [*build.compiler(), "-O0"], [DRIVER])
    first = len(fuzz_native.written())
    some = [*found[:first], *random.Random(target).sample(found[first:], SOME - first)]
    kept = tmp_path / "last"
    words = fuzz_native.made_by_dice(program, kept, some, SOME, int(LIMIT_S), 1)
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * LIMIT_S)
    assert done.returncode == 0, f"{done.stderr[-4000:]}\n{kept.read_bytes().hex()}"
    assert done.stdout == f"{SOME} files, {SOME} changed ones\n"


def test_dice_make_the_same_inputs_again(tmp_path):
    program = driven(tmp_path, SAYS)
    files = [tmp_path / "short", tmp_path / "long", tmp_path / "empty"]
    for file, data in zip(files, (b"abc", bytes(4096), b""), strict=True):
        file.write_bytes(data)

    def said(seed: int) -> list[str]:
        words = fuzz_native.made_by_dice(program, tmp_path / "last", files, 300, int(LIMIT_S), seed)
        return subprocess.run(words, capture_output=True, text=True, check=True).stderr.splitlines()

    inputs = said(1)
    assert inputs == said(1)
    assert inputs != said(2)
    assert inputs[:3] == ["616263", "00" * 4096, ""]
    assert len(inputs) == 303
    assert max(map(len, inputs)) == 2 * 4096
    assert len(set(inputs)) > 200
    assert (tmp_path / "last").read_bytes().hex() == said(2)[-1]


@pytest.mark.parametrize(("length", "said"), [
    (4097, "longer than 4096 bytes"), (None, "No such file or directory"),
])  # fmt: skip
def test_a_file_that_is_not_taken_whole_ends_the_program(tmp_path, length, said):
    program, file, kept = driven(tmp_path, SAYS), tmp_path / "file", tmp_path / "last"
    if length is not None:
        file.write_bytes(bytes(length))
    words = fuzz_native.made_by_dice(program, kept, [file], 0, 1, 1)
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{file}: {said}\n")


def test_an_input_that_takes_too_long_ends_the_program_and_is_kept(tmp_path):
    program, kept = driven(tmp_path, HANGS, "-DLIMIT_S=1"), tmp_path / "last"
    files = [tmp_path / "ends", tmp_path / "hangs_input", tmp_path / "later"]
    for file, data in zip(files, (b"ends", b"hangs", b"later"), strict=True):
        file.write_bytes(data)
    words = fuzz_native.made_by_dice(program, kept, files, 0, 1, 1)
    done = subprocess.run(words, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == -signal.SIGALRM
    assert kept.read_bytes() == b"hangs"


def test_libfuzzer_runs_where_clang_has_it(tmp_path, monkeypatch, capfd):
    if not fuzz_native.has_libfuzzer(tmp_path):
        pytest.skip("no clang with libFuzzer (Debian's clang, libclang-rt-14-dev)")
    monkeypatch.setattr(fuzz_native, "BUILD", tmp_path)
    assert fuzz_native.main(["decoders", "--runs", "50", "--seconds", str(int(LIMIT_S))]) == 0
    said = capfd.readouterr()
    assert said.out == "decoders: nothing found\n"
    executed = re.search(r"stat::number_of_executed_units: (\d+)\n", said.err)
    assert executed
    assert int(executed[1]) >= 50


def test_clang_without_libfuzzer_leaves_the_inputs_to_dice(tmp_path, monkeypatch, capfd):
    sanitizers()
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\nexit 1\n")
    clang.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(fuzz_native, "BUILD", tmp_path / "build")
    assert shutil.which("clang") == str(clang)
    assert fuzz_native.main(["rings", "--runs", "5", "--seconds", str(int(LIMIT_S))]) == 0
    first, *counted = capfd.readouterr().out.splitlines()
    assert first.startswith("no clang with libFuzzer")
    assert counted[0].endswith(" files, 5 changed ones")
    assert counted[1:] == ["rings: nothing found"]


def test_without_a_compiler_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(fuzz_native.shutil, "which", lambda name: None)
    assert fuzz_native.main([]) == 3
    assert "needs clang" in capsys.readouterr().err
