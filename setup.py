"""Build of the compiled modules.

A module is compiled when a ``.pxd`` stands beside it: ``x.py`` + ``x.pxd`` give the extension ``x``.
Where a file ``compiled_x.py`` exists too, the extension ``x`` is made from it and ``x.py`` is its
interpreted body.

The constants of a module in CONSTANTS are for the compiler too: of each, which imports nothing but the
standard library, a ``.pxd`` is made that compiled modules cimport (``cimport softhca_layout as abi``), so
that a number is said once and is a literal in C.

Environment: ``SOFTHCA_EXT=require`` (default) compiles and fails loudly; ``SOFTHCA_EXT=skip`` installs
plain Python.  ``SOFTHCA_ONLY=wire,memory`` limits the build to these folders; ``SOFTHCA_BOUNDSCHECK=1``
keeps index checks in; ``SOFTHCA_SANITIZE=address`` (``thread``, ``address,undefined``) builds modules that
run only with the compiler's sanitizer library preloaded.
"""

import os
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
CONSTANTS = {"softhca_layout": SOURCE / "softhca" / "queues" / "layout.py"}
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
    modules = []
    for pxd in sorted(SOURCE.rglob("*.pxd")):
        plain, compiled = pxd.with_suffix(".py"), pxd.with_name(f"compiled_{pxd.stem}.py")
        if pxd.stem == "__init__" or (only and pxd.parent.name not in only):
            continue
        body = compiled if compiled.exists() else plain
        name = ".".join(pxd.relative_to(SOURCE).with_suffix("").parts)
        modules.append(Extension(name, [str(body)], extra_compile_args=FLAGS, extra_link_args=CHECKS))
    checks = os.environ.get("SOFTHCA_BOUNDSCHECK", "0") == "1"
    directives = {"language_level": 3, "boundscheck": checks, "wraparound": False, "cdivision": True,
                  "initializedcheck": checks, "embedsignature": True, "freethreading_compatible": False}
    # setuptools takes relative paths only
    build_dir = Path(os.path.relpath(os.environ.get("SOFTHCA_BUILD_DIR", "build/cython")))
    generated = build_dir / "constants"
    for name, source in CONSTANTS.items():
        write_constants(generated / f"{name}.pxd", source)
    shared = Extension(SHARED, [str(shared_utilities(build_dir))],
                       extra_compile_args=FLAGS, extra_link_args=CHECKS)
    return [shared, *cythonize(modules, build_dir=str(build_dir), nthreads=os.cpu_count() or 1,
                               compiler_directives=directives, include_path=[str(SOURCE), str(generated)],
                               show_all_warnings=False, shared_utility_qualified_name=SHARED)]


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
    text = "\n".join(lines) + "\n"
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


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
