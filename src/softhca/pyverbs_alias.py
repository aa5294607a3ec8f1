"""``import pyverbs`` finds softhca's verbs.

`install` makes every ``pyverbs.x`` the very module ``softhca.verbs.x``, so that classes are the same
whichever name they were imported by.  ``python -m softhca.pyverbs_alias PROGRAM ARGS…`` runs an unmodified
program that way.
"""

import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from softhca import system_files

ALIAS = "pyverbs"
TARGET = "softhca.verbs"


def _target_of(name: str) -> str:
    return TARGET + name[len(ALIAS) :]


class _AliasLoader(Loader):
    """Gives the target's module for the alias's name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_target_of(spec.name))
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the import system has just put the alias's spec into the module
        module.__spec__ = self._own_spec


class _AliasFinder:
    """Finds ``pyverbs`` and what is below it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != ALIAS and not name.startswith(ALIAS + "."):
            return None
        try:
            found = importlib.util.find_spec(_target_of(name))
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(f"softhca has no {name}", name=name)
        return ModuleSpec(name, _AliasLoader(), is_package=found.submodule_search_locations is not None)


def install() -> None:
    """From now on ``import pyverbs`` finds softhca's verbs, in front of any installed pyverbs; twice is once.

    Modules of another pyverbs that were imported before are forgotten.
    """
    if any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        return
    for name in [each for each in sys.modules if each.startswith(ALIAS + ".")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _AliasFinder())
    sys.modules[ALIAS] = importlib.import_module(TARGET)
    system_files.install()
    if os.environ.get("SOFTHCA_EXPLAIN"):
        importlib.import_module("softhca.verbs_usage").install()


def main() -> None:
    """Run the program named by the first argument."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m softhca.pyverbs_alias PROGRAM [ARGS…]")
    install()
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)  # as the interpreter does for a script
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
