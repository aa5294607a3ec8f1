"""Every code block of the documents runs, or its tag says why it cannot.

``python``, ``console``, ``c`` and ``yaml`` are run, or read; a page's blocks share a folder, in their order.
``python-fragment`` is a part of a program, and compiles.  ``console-REASON`` is not run; that softhca takes
its commands is checked all the same.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from machine_speed import limit_s
from softhca.cli.commands import COMMANDS
from softhca.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
RUN = {"python", "console"}
REASONS = {
    "long": "takes long", "root": "needs root", "hosts": "needs two machines", "network": "downloads",
    "containers": "needs a container engine", "terminals": "needs two terminals",
}  # fmt: skip
OTHER = {"c", "yaml", "python-fragment", "text", "mermaid", "asm", "dockerfile"}
TIMEOUT_S = limit_s(600)
FENCE = re.compile(r"^(?P<fence>```+|:::+)(?P<tag>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ ]*$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Tag and text of each fenced block."""
    return [(found["tag"].strip(), found["body"]) for found in FENCE.finditer(page.read_text())]


def having(*tags: str) -> list[Path]:
    """The pages that have a block with one of these tags."""
    return [page for page in PAGES if {tag for tag, _ in blocks(page)} & set(tags)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(body: str) -> Iterator[str]:
    """The command lines of a console block: those behind ``$``, with the lines that they go on in."""
    for line in re.sub(r"\\\n\s*", " ", body).splitlines():
        if line.startswith("$ "):
            yield line[2:]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_has_a_tag_that_is_known(page: Path) -> None:
    known = RUN | OTHER | {f"console-{reason}" for reason in REASONS}
    for tag, body in blocks(page):
        assert tag in known or re.fullmatch(r"\{[a-z-]+\}.*", tag), f"```{tag}\n{body}"
        if tag.startswith("console"):
            assert list(commands(body)), f"a console block without a command: {body}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=name)
def test_no_block_hides_in_an_indentation(page: Path) -> None:
    """An indented block has no tag: only lists are indented."""
    text = FENCE.sub("", page.read_text())
    paragraphs = re.split(r"\n\s*\n", text)
    for before, after in itertools.pairwise(paragraphs):
        indented = all(line.startswith("    ") for line in after.splitlines() if line.strip())
        listed = re.match(r"\s*([*-]|\d+\.) |    ", before)
        assert not indented or not after.strip() or listed, after


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the examples, and with ``softhca`` and ``python`` on its path."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "docs").mkdir()
    tools = tmp_path / ".bin"
    tools.mkdir()
    for tool, words in (("softhca", "-m softhca"), ("python", "")):
        (tools / tool).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / tool).chmod(0o755)
    return tmp_path


def run(command: list[str], place: Path) -> None:
    """Run it; its output is the message of a failure."""
    path = f"{place / '.bin'}{os.pathsep}{os.environ['PATH']}"
    package = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PATH": path, "PYTHONPATH": package}
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", having(*RUN), ids=name)
def test_the_blocks_of_a_page_run(page: Path, place: Path) -> None:
    for tag, body in blocks(page):
        if tag == "console":
            for command in commands(body):
                run(["bash", "-euc", command], place)
        elif tag == "python":
            tests = "\nfor _name in [n for n in dir() if n.startswith('test_')]:\n    globals()[_name]()\n"
            run([sys.executable, "-c", body + tests], place)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_not_run_is_at_least_accepted(page: Path) -> None:
    """Fragments compile; of commands that cannot be run here, softhca's parser takes the words."""
    parser = build_parser(*COMMANDS)
    for tag, body in blocks(page):
        if tag == "python-fragment":
            compile(body, name(page), "exec")
        elif tag == "yaml":
            for command in lines_of(yaml.safe_load(body)):
                accept(parser, command)
        elif tag.startswith("console-"):
            for command in commands(body):
                accept(parser, command)


def lines_of(document: object) -> Iterator[str]:
    """Every text in a document of YAML."""
    if isinstance(document, dict):
        for value in document.values():
            yield from lines_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from lines_of(value)
    elif isinstance(document, str):
        yield document


def accept(parser: argparse.ArgumentParser, command: str) -> None:
    """That the parser takes what stands behind ``softhca``; that a target of make is there."""
    words = shlex.split(command, comments=True)
    if "docker" in words:
        words = words[words.index("softhca") + 1 :] if words.count("softhca") > 1 else []
    if words[:1] == ["softhca"]:
        parser.parse_args(words[1:])
    if words[:1] == ["make"]:
        assert re.search(rf"^[a-z -]*\b{words[1]}\b[a-z -]*:", (ROOT / "Makefile").read_text(), re.M), command


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("page", having("c"), ids=name)
def test_programs_in_c_compile_and_run(page: Path, place: Path) -> None:
    run(["bash", "-c", "softhca abi header -o softhca.h"], place)
    for tag, body in blocks(page):
        if tag == "c":
            (place / "program.c").write_text(body)
            run(["cc", "-std=c11", "-Wall", "-Werror", "-o", "program", "program.c"], place)
            run([str(place / "program")], place)
