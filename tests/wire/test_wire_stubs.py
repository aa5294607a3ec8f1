"""Every hot module says the same in its ``.py``, its ``.pyi`` (for people; none where the ``.py`` has hints)
and its ``.pxd`` (for C)."""

import ast
import re
from pathlib import Path

import pytest

import softhca

ROOMS = [Path(softhca.__file__).parent / name for name in ("wire", "queues")]
HINTED = "from __future__ import annotations"
STUBS = {path.stem: path for room in ROOMS for path in room.glob("*.pyi")}


def functions(path: Path) -> dict[str, tuple[list[str], int]]:
    """Public functions and methods: names of the arguments, number of defaults."""
    found = {}
    for outer in ast.parse(path.read_text()).body:
        inner = outer.body if isinstance(outer, ast.ClassDef) else [outer]
        prefix = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
        for node in inner:
            if not isinstance(node, ast.FunctionDef) or any(
                isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list
            ):
                continue
            if not node.name.startswith("_") or node.name == "__init__":
                found[prefix + node.name] = ([arg.arg for arg in node.args.args], len(node.args.defaults))
    return found


def test_a_stub_stands_beside_every_hot_module() -> None:
    hot = [path.with_suffix(".py") for room in ROOMS for path in room.glob("*.pxd")]
    assert set(STUBS) == {path.stem for path in hot if HINTED not in path.read_text()}


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_has_the_modules_signatures(name: str) -> None:
    plain = functions(STUBS[name].with_suffix(".py"))
    stub = functions(STUBS[name])
    assert stub
    for function, signature in stub.items():
        assert plain[function] == signature, function


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_leaves_out_only_what_c_alone_sees(name: str) -> None:
    hidden = set(functions(STUBS[name].with_suffix(".py"))) - set(functions(STUBS[name]))
    declared = STUBS[name].with_suffix(".pxd").read_text()
    for function in (name for name in hidden if not name.endswith("__init__")):
        assert re.search(rf"cdef (inline )?[\w ]*\b{function.rpartition('.')[2]}\(", declared), function


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_has_every_public_attribute(name: str) -> None:
    stub = STUBS[name].read_text()
    for kind, attribute in re.findall(
        r"cdef (public|readonly) .*?(\w+)$", STUBS[name].with_suffix(".pxd").read_text(), re.M
    ):
        pattern = rf"^    {attribute}: " if kind == "public" else rf"^    def {attribute}\(self\)"
        assert re.search(pattern, stub, re.M), attribute
