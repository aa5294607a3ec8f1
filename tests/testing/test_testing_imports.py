"""What several tests need stands in a module of its own: no test imports another."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MAY = re.compile(r"^\s*(from|import)\b.*\btest_", re.MULTILINE)
"""What such an import has in it; only files that have it are taken apart."""


def imported(path):
    """Names of the modules that a file imports, itself not counted; none where none of them may be a test."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if MAY.search(text) else ():
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name != path.stem)


def test_no_module_imports_a_test():
    found = {
        path.name: name
        for path in TESTS.rglob("*.py")
        for name in imported(path)
        if name.startswith("test_")
    }
    assert found == {}


def test_an_import_of_a_test_is_seen(tmp_path):
    path = tmp_path / "helper.py"
    for text in ("import os, test_os", "if a:\n    from test_os import a", "from test_os import (\n    a)"):
        path.write_text(text)
        assert "test_os" in imported(path)
