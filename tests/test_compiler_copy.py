"""The compiler gets a copy of a module without type hints: the same statements, on the same lines."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HINTED = "from __future__ import annotations"
MODULES = sorted(
    path
    for path in (ROOT / "src").rglob("*.py")
    if path.with_suffix(".pxd").exists() and HINTED in path.read_text()
)

SOURCE = '''
from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from somewhere import (
        Kind,
    )


class Table:
    """Of kinds: the compiler's."""

    entries: list[Kind]
    slots: int = 3

    def find(self, key: int, *rest: bytes, kind: Kind = None, **more: dict[str, "Kind"]) -> Kind | None:
        place: cython.uint = key  # the compiler's: it stays
        self.found: dict[int, Kind] = {}
        return lambda: place


class Note:
    """None of the compiler's."""

    text: str
'''

EXPECTED = '''
from __future__ import annotations

from typing import TYPE_CHECKING

import cython

pass





class Table:
    """Of kinds: the compiler's."""

    pass
    slots: int = 3

    def find(self, key, *rest, kind = None, **more):
        place: cython.uint = key  # the compiler's: it stays
        self.found = {}
        return lambda: place


class Note:
    """None of the compiler's."""

    text: str
'''


def function_of_setup(name: str, *needs: str):
    """A function of the build's script, which cannot be imported: it builds; ``needs`` are those it calls."""
    found: list[ast.stmt] = [
        node
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name in (name, *needs)
    ]
    names: dict = {"ast": ast, "os": os, "re": re, "Path": Path}
    exec(compile(ast.Module(found, []), "setup.py", "exec"), names)
    return names[name]


def value_in_setup(name: str):
    """What the build's script says once as a literal."""
    (found,) = (
        node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name
    )
    return ast.literal_eval(found)


def test_no_compiled_module_has_a_generator():
    """One is enough, and some thirty functions of Cython's that carry generators are compiled for its
    module; a list does the same, and takes a tenth less of a build."""
    compiled = [path for path in (ROOT / "src").rglob("*.py") if path.with_suffix(".pxd").exists()]
    assert len(compiled) >= len(MODULES) > 50
    found = [
        f"{path}:{node.lineno}"
        for path in compiled
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.GeneratorExp, ast.Yield, ast.YieldFrom))
    ]
    assert not found, "write a list, or a loop"


@pytest.fixture(scope="module")
def without_hints():
    return function_of_setup("without_hints")


def test_hints_of_parameters_results_and_attributes_go_and_nothing_else(without_hints):
    found = [re.sub(r"\s+", "", line) for line in without_hints(SOURCE, {"Table"}).splitlines()]
    assert found == [re.sub(r"\s+", "", line) for line in EXPECTED.splitlines()]


class Plain(ast.NodeTransformer):
    """Takes hints away from a tree, by its own means."""

    def __init__(self, classes: set[str]) -> None:
        self.classes = classes

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if isinstance(node.target, ast.Attribute) and node.value is not None:
            return ast.Assign([node.target], node.value, lineno=node.lineno)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        return ast.Pass() if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.name in self.classes:
            node.body = [
                ast.Pass() if isinstance(each, ast.AnnAssign) and each.value is None else each
                for each in node.body
            ]
        return self.generic_visit(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_copy_of_a_module_says_the_same_on_the_same_lines(path, without_hints):
    source = path.read_text()
    classes = set(re.findall(r"^cdef class (\w+)", path.with_suffix(".pxd").read_text(), re.MULTILINE))
    copy = without_hints(source, classes)
    assert ast.unparse(ast.parse(copy)) == ast.unparse(Plain(classes).visit(ast.parse(source)))
    seen, there = (
        {node.name: node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
        for text in (copy, source)
    )
    assert seen == {name: there[name] for name in seen}


def test_some_modules_have_hints():
    assert len(MODULES) > 10


def named_in_setup(table):
    folders = {room.replace(".", "/"): modules.split() for room, modules in value_in_setup(table).items()}
    return [f"{folder}/{module}" for folder, modules in folders.items() for module in modules]


def test_what_is_compiled_with_optimisation_is_compiled():
    package = ROOT / "src" / "softhca"
    compiled = {path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.pxd")}
    named = named_in_setup("HOT")
    assert set(named) <= compiled
    assert len(set(named)) == len(named)


@pytest.mark.parametrize(
    "line",
    [
        "from package cimport lowest",
        "from package cimport lowest  # whose words",
        "from package cimport (other,\n    lowest as one)",
        "from package.lowest cimport number",
        "cimport package.lowest",
    ],
)
def test_a_module_is_made_anew_when_one_changes_that_its_declarations_cimport(line, tmp_path, monkeypatch):
    dependencies = pytest.importorskip("Cython.Build.Dependencies")
    package = tmp_path / "package"
    package.mkdir()
    for name, text in {
        "__init__.py": "",
        "lowest.pxd": "cdef unsigned int number\n",
        "middle.pxd": f"{line}\n\ncdef class Middle:\n    cdef object kept\n",
        "highest.pxd": "from package.middle cimport Middle\n",
        "highest.py": "",
        "compiled_middle.py": "",
    }.items():
        (package / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dependencies, "_dep_tree", None)  # Cython keeps one for a process, and what it read
    pytest.importorskip("Cython.Utils").clear_function_caches()
    tree = dependencies.create_dependency_tree(quiet=True)
    function_of_setup("see_all_dependencies", "names_cimported")(tree)
    assert "package/lowest.pxd" in tree.all_dependencies("package/highest.py")
    assert {"package/lowest.pxd", "package/middle.pxd"} < tree.all_dependencies("package/compiled_middle.py")
