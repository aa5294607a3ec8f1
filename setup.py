"""Build of the compiled modules.

A module is compiled when a ``.pxd`` stands beside it: ``x.py`` + ``x.pxd`` give the extension ``x``.
Where a file ``compiled_x.py`` exists too, the extension ``x`` is made from it and ``x.py`` is its
interpreted body.

The constants of a module in CONSTANTS are for the compiler too: of each, which imports nothing but the
standard library, a ``.pxd`` is made that compiled modules cimport (``cimport softhca_layout as abi``), so
that a number is said once and is a literal in C.

The ``.pxd`` alone says the types that the compiler takes; the hints of a ``.py`` are for its readers and for
mypy.  The compiler would take ``x: int`` in a signature for a declaration of its own, so it is given a copy
without them of each module that has ``from __future__ import annotations``.  Annotations of local variables
are declarations and stay, unless the module says ``# cython: annotation_typing=False``: then none is one.

Environment: ``SOFTHCA_EXT=require`` (default) compiles and fails loudly; ``SOFTHCA_EXT=skip`` installs
plain Python.  ``SOFTHCA_ONLY=wire,memory`` limits the build to these folders; ``SOFTHCA_BOUNDSCHECK=1``
keeps index checks in; ``SOFTHCA_SANITIZE=address`` (``thread``, ``address,undefined``) builds modules that
run only with the compiler's sanitizer library preloaded.
"""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

from setuptools import setup

SOURCE = Path("src")
SANITIZE = os.environ.get("SOFTHCA_SANITIZE", "")
CHECKS = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
SPEED = ["-O1", "-g1", "-fno-omit-frame-pointer"] if SANITIZE else ["-O2", "-g0"]
FLAGS = [*SPEED, "-Wno-unused-function", "-Wno-sign-compare", *CHECKS]
SHARED = "softhca._cyutility"
DIRECTIVE = "# cython: annotation_typing=False\n"
CONSTANTS = {"softhca_layout": SOURCE / "softhca" / "queues" / "layout.py",
             "softhca_bits": SOURCE / "softhca" / "memory" / "bits.py"}
MODE = os.environ.get("SOFTHCA_EXT", "require")
if MODE not in ("require", "skip"):
    sys.exit(f"SOFTHCA_EXT={MODE!r}: expected 'require' or 'skip'")


def extensions() -> list:
    if MODE == "skip":
        return []
    try:
        from Cython.Build import cythonize
        from setuptools import Extension
    except ImportError as error:
        sys.exit(f"softhca: Cython is needed to compile ({error}); SOFTHCA_EXT=skip installs plain Python")
    only = [name for name in os.environ.get("SOFTHCA_ONLY", "").split(",") if name]
    # setuptools takes relative paths only
    build_dir = Path(os.path.relpath(os.environ.get("SOFTHCA_BUILD_DIR", "build/cython")))
    modules: dict = {True: [], False: []}
    for pxd in sorted(SOURCE.rglob("*.pxd")):
        plain, compiled = pxd.with_suffix(".py"), pxd.with_name(f"compiled_{pxd.stem}.py")
        if pxd.stem == "__init__" or (only and pxd.parent.name not in only):
            continue
        body = compiled if compiled.exists() else plain
        name = ".".join(pxd.relative_to(SOURCE).with_suffix("").parts)
        source = compiler_copy(body, pxd, build_dir / "unhinted")
        extension = Extension(name, [str(source)], extra_compile_args=FLAGS, extra_link_args=CHECKS)
        modules[source is body].append(extension)
    checks = os.environ.get("SOFTHCA_BOUNDSCHECK", "0") == "1"
    directives = {"language_level": 3, "boundscheck": checks, "wraparound": False, "cdivision": True,
                  "initializedcheck": checks, "embedsignature": True, "freethreading_compatible": False}
    generated = build_dir / "constants"
    for name, source in CONSTANTS.items():
        write_constants(generated / f"{name}.pxd", source)
    shared = Extension(SHARED, [str(shared_utilities(build_dir))],
                       extra_compile_args=FLAGS, extra_link_args=CHECKS)
    made = [shared]
    for in_place, some in modules.items():  # of a copy, C stands beside it
        made += cythonize(some, build_dir=str(build_dir) if in_place else None, nthreads=os.cpu_count() or 1,
                          compiler_directives=directives, include_path=[str(SOURCE), str(generated)],
                          show_all_warnings=False, shared_utility_qualified_name=SHARED)
    return made


def write_constants(target: Path, source: Path) -> None:
    """The numbers of a module as C constants of the same names; nothing is written where they are as before,
    so that nothing is compiled anew."""
    numbers = {name: value for name, value in runpy.run_path(str(source)).items()
               if name.isupper() and type(value) is int}
    lines = [f"# Made of {source} by setup.py.", "cdef extern from *:", '    """']
    lines += [f"    #define {target.stem}_{name} {value}{'ULL' if value > 0x7FFFFFFF else ''}"
              for name, value in numbers.items()]
    lines += ['    """']
    for name, value in numbers.items():
        kind = "unsigned long long" if value > 0x7FFFFFFF else "int"
        lines.append(f'    const {kind} {name} "{target.stem}_{name}"')
    write_changed(target, "\n".join(lines) + "\n")


def write_changed(target: Path, text: str) -> None:
    """Leave a file as it is where it has this text, so that nothing is made anew of it."""
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def compiler_copy(body: Path, pxd: Path, directory: Path) -> Path:
    """A copy of ``body`` without hints where it evaluates no annotation, else ``body`` itself.  The copy's
    ``.pxd`` stands beside it, as that is where the compiler looks for what a module depends on."""
    source = body.read_text()
    if "\nfrom __future__ import annotations\n" not in source or DIRECTIVE in source:
        return body
    text = without_hints(source, set(re.findall(r"^cdef class (\w+)", pxd.read_text(), re.MULTILINE)))
    copy = directory / body.relative_to(SOURCE)
    write_changed(copy, text)
    write_changed(copy.with_name(pxd.name), pxd.read_text())
    return copy


def without_hints(source: str, classes: set) -> str:
    """Source without annotations of parameters, results and attributes of the compiler's ``classes``, and
    without what is imported for them only (``if TYPE_CHECKING``).  Each line keeps its number.  A result's
    annotation is on one line."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = bytearray(b"".join(lines))

    def blank(start: int, end: int, instead: bytes = b"") -> None:
        kept = bytes(byte if byte in b"\r\n" else 0x20 for byte in data[start:end])
        data[start:end] = instead + kept[len(instead):]

    def begin(node) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def end(node) -> int:
        return starts[node.end_lineno - 1] + node.end_col_offset

    def unannotate(node, mark: bytes) -> None:
        blank(data.rindex(mark, 0, begin(node)), end(node))

    def visit(node) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            blank(begin(node), end(node), b"pass")
            return
        if isinstance(node, ast.arg) and node.annotation:
            unannotate(node.annotation, b":")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
            unannotate(node.returns, b"->")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            unannotate(node.annotation, b":")
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.ClassDef) and node.name in classes and (
                    isinstance(child, ast.AnnAssign) and child.value is None):
                blank(begin(child), end(child), b"pass")
            else:
                visit(child)

    visit(ast.parse(source))
    return data.decode()


def shared_utilities(build_dir: Path) -> Path:
    """Cython's own helpers (memoryviews and the like) as one module that all others import, so that they are
    compiled once and not once a module: that halves the time of a build.  Made anew for another Cython."""
    import Cython

    source = build_dir / f"cython-{Cython.__version__}" / f"{SHARED.rpartition('.')[2]}.c"
    if not source.exists():
        source.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "cython", f"--module-name={SHARED}", f"--generate-shared={source}"]
        subprocess.run(command, check=True)
    return source


setup(ext_modules=extensions())
