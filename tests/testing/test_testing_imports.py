"""What several tests need stands in a module of its own: no test imports another."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported(path):
    """Names of the modules that a file imports, itself not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
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
