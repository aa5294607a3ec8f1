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

The library for programs in C (``softhca.native``) is built beside the modules.
"""

import ast
import contextlib
import functools
import gc
import multiprocessing
import multiprocessing.connection
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCE = Path("src")
SANITIZE = os.environ.get("SOFTHCA_SANITIZE", "")
CHECKS = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
SANITIZED = ["-O0", "-g1", "-fno-omit-frame-pointer"]
QUIET = ["-w"]  # what Cython makes is not for people
# Most of a build is gcc's optimizer.  What packets and calls pass through gets what of it made a difference
# there; all of -O2 took half as much time again for nothing that could be measured.  -Og, with functions that
# are called once where they are called, spares the rest 45 % of that: it runs less often, or only in virtual
# time.
QUICK = ["-O1", "-finline-small-functions", "-findirect-inlining", "-fpartial-inlining", "-fstrict-aliasing",
         "-freorder-blocks-and-partition", "-freorder-blocks-algorithm=stc", "-fschedule-insns2",
         "-fcaller-saves", "-fipa-ra", "-foptimize-sibling-calls", "-g0"]
SMALL = ["-Og", "-finline-functions-called-once", "-finline-small-functions", "-g0"]
# clang knows few of these words, and zig's gives code at -Og checks of its own.  -Og is the only one of gcc's
# levels here that does not take pointers of other types for pointers to other memory.
CLANG_QUICK = ["-O2", "-g0"]
CLANG_SMALL = ["-O1", "-fno-strict-aliasing", "-g0"]
HOT = {
    "adapter": "engine receive_path scheduler sources",
    "driver": "locked polling posting",
    "links": "held_bursts link roce_udp",
    "machine": "deferred_signals primitives",
    "mailbox": "blocks rings",
    "memory": "regions",
    "queues": "completion cqe doorbells ring wqe",
    "runtime": "loop same_host_ring transmitter turn_lock",
    "sockets": "behind_pool datagram_credits datagram_path datagram_port datagram_port_path datagram_state "
               "device_calls memory_management staging stream_path stream_receiving stream_sending "
               "stream_state waiting work_requests",
    "transport": "acknowledgement datagram execution executor queue_pair_flow receiving replies requester "
                 "responder retry same_host_source scatter segmentation sending unreliable "
                 "unreliable_receiver window",
    "wire": "arriving build burst field_packing icrc packet_view psn",
}
SHARED = "softhca._cyutility"
BOUNDSCHECK = os.environ.get("SOFTHCA_BOUNDSCHECK", "0") == "1"
DIRECTIVES = {"language_level": 3, "boundscheck": BOUNDSCHECK, "wraparound": False, "cdivision": True,
              "initializedcheck": BOUNDSCHECK, "embedsignature": True, "freethreading_compatible": False,
              "auto_pickle": False, "show_performance_hints": False, "emit_code_comments": False}
UNTYPED = "# cython: annotation_typing=False\n"
CONSTANTS = {"softhca_layout": SOURCE / "softhca" / "queues" / "layout.py",
             "softhca_bits": SOURCE / "softhca" / "memory" / "bits.py"}
MODE = os.environ.get("SOFTHCA_EXT", "require")
if MODE not in ("require", "skip"):
    sys.exit(f"SOFTHCA_EXT={MODE!r}: expected 'require' or 'skip'")


def extensions() -> list:
    """What is compiled, of which source; nothing is made yet, as a package's metadata need no C."""
    if MODE == "skip":
        return []
    only = [name for name in os.environ.get("SOFTHCA_ONLY", "").split(",") if name]
    found = []
    for pxd in sorted(SOURCE.rglob("*.pxd")):
        if pxd.stem == "__init__" or (only and pxd.parent.name not in only):
            continue
        name = ".".join(pxd.relative_to(SOURCE).with_suffix("").parts)
        compiled = pxd.with_name(f"compiled_{pxd.stem}.py")
        body = compiled if compiled.exists() else pxd.with_suffix(".py")
        found.append(Extension(name, [str(body)], extra_compile_args=words(name), extra_link_args=CHECKS))
    found.sort(key=lambda extension: os.path.getsize(extension.sources[0]), reverse=True)
    return [Extension(SHARED, [], extra_compile_args=words(SHARED), extra_link_args=CHECKS), *found]


def words(name: str) -> list[str]:
    """The C compiler's words for a module."""
    if SANITIZE:
        return [*SANITIZED, *QUIET, *CHECKS]
    package, _, module = name.removeprefix("softhca.").rpartition(".")
    quick, small = (CLANG_QUICK, CLANG_SMALL) if is_clang() else (QUICK, SMALL)
    return [*(quick if module in HOT.get(package, "").split() else small), *QUIET]


@functools.cache
def is_clang() -> bool:
    """Whether ``CC`` names a compiler of clang's words."""
    named = shlex.split(os.environ.get("CC", ""))
    return bool(named) and "clang" in version_of(*named)


def version_of(*command: str) -> str:
    """What a compiler says of itself; nothing where there is none."""
    if not shutil.which(command[0]):
        return ""
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout


class BuildModules(build_ext):
    """Each module goes its whole way, from Python to C to an extension, in one of as many processes as there
    are processors, the largest first, so that all are busy until the end; a line tells of each that is made.
    What is newer than all that it is made of, and was made with the same words, stays as it is."""

    context = None
    translating = False

    def run(self) -> None:
        try:
            super().run()
        finally:
            finish_library()

    def build_extensions(self) -> None:
        self.check_extensions_list(self.extensions)
        # setuptools takes relative paths only
        self.directory = Path(os.path.relpath(os.environ.get("SOFTHCA_BUILD_DIR", "build/cython")))
        self.headers = {}  # of words
        self.prepare()
        with self.precompiled_header():
            self.make_all()

    def make_all(self) -> None:
        before, start = {each.name: self.made_at(each) for each in self.extensions}, time.monotonic()
        for told, extension in enumerate(self.made_in_parallel(), 1):
            if self.made_at(extension) != before[extension.name]:
                seconds, place = time.monotonic() - start, f"[{told:2}/{len(self.extensions)}]"
                print(f"{place} {seconds:4.0f} s  {extension.name}", flush=True)

    def prepare(self) -> None:
        """Write what modules are made of besides their sources, and say to Cython what they depend on."""
        try:
            import Cython
            from Cython.Build import Dependencies
        except ImportError as error:
            sys.exit(f"softhca: compiling needs Cython ({error}); SOFTHCA_EXT=skip installs plain Python")
        forget_other_directives(self.directory)
        for name, source in CONSTANTS.items():
            write_changed(self.directory / "constants" / f"{name}.pxd", constants_of(name, source))
        for extension in self.extensions:
            extension.note = Path(self.build_temp) / "words" / extension.name
            write_changed(extension.note, " ".join(extension.extra_compile_args))
            if extension.name != SHARED:
                body = Path(extension.sources[0])
                extension.body = compiler_copy(body, pxd_of(extension), self.directory / "unhinted")
        self.cythonize([])
        tree = Dependencies.create_dependency_tree()  # all processes use it, and what it has read
        see_all_dependencies(tree)
        for extension in self.extensions:
            if extension.name != SHARED:
                tree.all_dependencies(str(extension.body))
        # Cython looks by itself whether C is of its own version, and pip has a new copy of Cython each time.
        theirs, age = os.path.dirname(Cython.__file__), tree.timestamp
        tree.timestamp = lambda path: 0 if path.startswith(theirs) else age(path)
        self.translating = any(self.translates(extension, tree) for extension in self.extensions
                               if extension.name != SHARED)
        if self.translating:
            self.declare()

    @contextlib.contextmanager
    def precompiled_header(self):
        """Have gcc read Python's headers once for all modules of the same words: a twentieth of its time.
        Where it could not, it reads them as it would.  Nothing is left of it, as gcc does not see when
        headers have changed."""
        if not self.translating or "Free Software" not in version_of(self.compiler.compiler_so[0]):
            yield
            return
        include = [f"-I{each}" for each in self.compiler.include_dirs]
        with tempfile.TemporaryDirectory() as folder:
            for number, words in enumerate({tuple(each.extra_compile_args) for each in self.extensions}):
                header = Path(folder, f"python{number}.h")
                header.write_text('#define PY_SSIZE_T_CLEAN\n#include "Python.h"\n')
                subprocess.run([*self.compiler.compiler_so, *include, *words, "-x", "c-header", str(header),
                                "-o", f"{header}.gch"], check=False)
                self.headers[words] = header
            yield

    def translates(self, extension, tree) -> bool:
        """Whether something is newer than the C of this extension."""
        beside = extension.body.with_suffix(".c")
        made = self.directory / beside if str(extension.body) == extension.sources[0] else beside
        return not made.exists() or made.stat().st_mtime < tree.newest_dependency(str(extension.body))[0]

    def made_in_parallel(self):
        """Each extension as soon as it is made, in a process of its own: what is imported, set and declared
        here is there too, and what its translation leaves behind ends with it."""
        fork = multiprocessing.get_context("fork")
        waiting, running, failed = iter(self.extensions), {}, False
        while True:
            while not failed and len(running) < available_processors():
                if (extension := next(waiting, None)) is None:
                    break
                process = fork.Process(target=self.make, args=(extension,), daemon=True)
                process.start()
                running[process.sentinel] = process, extension
            if not running:
                break
            for sentinel in multiprocessing.connection.wait(list(running)):
                process, extension = running.pop(sentinel)
                process.join()
                if process.exitcode:
                    failed = True
                else:
                    yield extension
        if failed:
            sys.exit("softhca: a module could not be compiled; what is wrong stands above")

    def make(self, extension) -> None:
        # Collecting garbage was 40 % of the time from Python to C: trees of a module are many small objects.
        gc.disable()
        made = self.translated(extension)
        if header := self.headers.get(tuple(made.extra_compile_args)):
            made.extra_compile_args = [*made.extra_compile_args, "-include", str(header)]
        self.build_extension(made)

    def declare(self) -> None:
        """Let Cython read the declarations of all modules once, before processes part that translate them.
        Reading them anew for each, as most cimport most at last, was more than half of the time from Python
        to C."""
        from Cython.Compiler import Errors, Main

        contexts, usual = [], Main.Context.from_options

        def noted(options):
            contexts.append(usual(options))
            return contexts[-1]

        Main.Context.from_options = noted
        self.cythonize([])
        Main.Context.from_options = usual
        context = contexts[-1]
        Errors.init_thread()
        for extension in self.extensions:
            if extension.name != SHARED:
                context.find_module(extension.name)
        self.context = None if Errors.get_errors_count() else context

    def with_declarations(self, extension) -> None:
        """Let Cython translate this extension, and nothing else in this process, with what is declared
        already.  Of code in declarations, and of functions, it gets what those it needs have and name."""
        from Cython.Build.Dependencies import create_dependency_tree
        from Cython.Compiler import Main

        dependencies = create_dependency_tree().all_dependencies(extension.sources[0])
        needed = {os.path.realpath(path) for path in dependencies}
        named = set()
        for name in list(self.context.pxds):
            path = os.path.realpath(SOURCE.joinpath(*name.split(".")).with_suffix(".pxd"))
            if name == extension.name or path in needed:
                named |= names_cimported(Path(path))
            elif name.startswith("softhca."):
                del self.context.pxds[name]
        if not any("[::1]" in Path(path).read_text() for path in (*dependencies, extension.sources[0])):
            self.context.utility_pxds = {}  # of memoryviews
        for scope in [scope for _, scope in self.context.pxds.values()]:
            if scope.qualified_name != extension.name:
                # What makes an object of a C function, of a cpdef that is extern: its own module alone does.
                scope.utility_code_list = [code for code in scope.utility_code_list
                                           if getattr(code, "name", "") != "cfunc.to_py"]
                for entry in scope.cfunc_entries:
                    if entry.visibility == "private" and entry.defined_in_pxd:
                        whole = scope.qualified_name.rpartition(".")
                        entry.used = bool({(scope.qualified_name, entry.name), whole[::2]} & named)
        Main.Context.from_options = lambda options: self.context

    def made_at(self, extension) -> int:
        path = Path(self.get_ext_fullpath(extension.name))
        return path.stat().st_mtime_ns if path.exists() else 0

    def translated(self, extension):
        """The same extension, of C."""
        made = extension
        if extension.name == SHARED:
            extension.sources = [str(shared_utilities(self.directory))]
        else:
            in_place = str(extension.body) == extension.sources[0]  # of a copy, C stands beside it
            extension.sources = [str(extension.body)]
            if self.context:
                self.with_declarations(extension)
            [made] = self.cythonize([extension], str(self.directory) if in_place else None)
            made._needs_stub = extension._needs_stub
        made.depends = [str(extension.note)]
        return made

    def cythonize(self, some: list, build_dir: str | None = None) -> list:
        from Cython.Build import cythonize

        return cythonize(some, build_dir=build_dir, quiet=True, compiler_directives=DIRECTIVES,
                         include_path=[str(SOURCE), str(self.directory / "constants")],
                         show_all_warnings=False, shared_utility_qualified_name=SHARED)


class BuildSources(build_py):
    """Takes away from where the package is built what an earlier build left there and no source makes; builds
    the library for programs in C."""

    def run(self) -> None:
        super().run()
        begin_library(self.library())
        if not self.distribution.ext_modules:
            finish_library()
        package = Path(self.build_lib) / "softhca"
        if self.editable_mode or os.environ.get("SOFTHCA_ONLY") or not package.exists():
            return
        made = {*self.get_outputs(), *self.get_finalized_command("build_ext").get_outputs()}
        kept = {os.path.normpath(each) for each in made}
        for path in package.rglob("*"):
            if path.is_file() and os.path.normpath(path) not in kept:
                path.unlink()

    def library(self) -> Path:
        place = SOURCE if self.editable_mode else Path(self.build_lib)
        return place / "softhca" / "native" / "libibverbs.so.1"

    def get_outputs(self, include_bytecode=1) -> list[str]:
        made = [self.library(), self.library().with_name("libsofthca-paths.so")]
        return [*super().get_outputs(include_bytecode), *(str(each) for each in made if each.exists())]


LIBRARY: list[subprocess.Popen] = []


def begin_library(target: Path) -> None:
    """Begin to build the library for programs in C, beside the modules, unless it is newer than what it is
    made of.  A build of plain Python has none."""
    if MODE == "skip" or os.environ.get("SOFTHCA_ONLY"):
        return
    package = SOURCE / "softhca"
    sources = [*(package / "native").rglob("*.[chpm]*"), *(package / "queues").glob("*.py"),
               package / "driver" / "rdmacm" / "states.py", package / "memory" / "regions.py"]
    if target.exists() and target.stat().st_mtime > max(each.stat().st_mtime for each in sources):
        return
    found = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "softhca.native.build", str(target)]
    LIBRARY.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": found}))


def finish_library() -> None:
    """Wait until the library is there."""
    while LIBRARY:
        if LIBRARY.pop().wait():
            sys.exit("softhca: the library for programs in C could not be built; what is wrong stands above")


def available_processors() -> int:
    return len(os.sched_getaffinity(0))


def pxd_of(extension) -> Path:
    return SOURCE.joinpath(*extension.name.split(".")).with_suffix(".pxd")


def see_all_dependencies(tree) -> None:
    """Let Cython's tree of dependencies see what it does not, so that a change of that leaves nothing old:
    modules that a file cimports from a package (``from package cimport module``), as what it looks for after
    that word it looks for at the beginning of a line; and the ``x.pxd`` of a ``compiled_x.py``."""
    read, files = tree.parse_dependencies, tree.cimported_files

    def with_modules(path: str) -> tuple:
        cimports, *others = read(path)
        return [*cimports, *map(".".join, sorted(names_cimported(Path(path))))], *others

    def with_declarations(path: str) -> tuple:
        folder, name = os.path.split(path)
        own = os.path.join(folder, os.path.splitext(name.removeprefix("compiled_"))[0] + ".pxd")
        return *files(path), *([own] if name.startswith("compiled_") and os.path.exists(own) else [])

    tree.parse_dependencies, tree.cimported_files = with_modules, with_declarations


def names_cimported(pxd: Path) -> set:
    """What a file cimports by name: pairs of the name of a module, or package, and a name of it."""
    found = set()
    for module, names in re.findall(r"^from ([\w.]+) cimport (\([^)]*\)|.*)", pxd.read_text(), re.MULTILINE):
        found |= {(module, name.split()[0]) for name in names.strip("()").split(",") if name.strip()}
    return found


def forget_other_directives(directory: Path) -> None:
    """Take away C that was made with other directives: its age does not show it."""
    note = directory / "directives"
    if note.exists() and note.read_text() != str(DIRECTIVES):
        for path in directory.rglob("*.c"):
            path.unlink()
    write_changed(note, str(DIRECTIVES))


def constants_of(name: str, source: Path) -> str:
    """The numbers of a module as C constants of the same names: a ``.pxd``'s text."""
    numbers = {number: value for number, value in runpy.run_path(str(source)).items()
               if number.isupper() and type(value) is int}
    lines = [f"# Made of {source} by setup.py.", "cdef extern from *:", '    """']
    lines += [f"    #define {name}_{number} {value}{'ULL' if value > 0x7FFFFFFF else ''}"
              for number, value in numbers.items()]
    lines += ['    """']
    for number, value in numbers.items():
        kind = "unsigned long long" if value > 0x7FFFFFFF else "int"
        lines.append(f'    const {kind} {number} "{name}_{number}"')
    return "\n".join(lines) + "\n"


def write_changed(target: Path, text: str) -> None:
    """Leave a file as it is where it has this text, so that nothing is made anew of it."""
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def compiler_copy(body: Path, pxd: Path, directory: Path) -> Path:
    """A copy of ``body`` without hints where it evaluates no annotation, else ``body`` itself.  The copy's
    ``.pxd`` stands beside it, as that is where the compiler looks for what a module depends on."""
    source = body.read_text()
    if "\nfrom __future__ import annotations\n" not in source or UNTYPED in source:
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


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildModules, "build_py": BuildSources})
