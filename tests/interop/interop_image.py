"""What a guest boots: a root file system that all guests share, and for each kernel an initial RAM file
system with the modules it needs.  Everything is unpacked from Debian's packages, without root, and cached.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from interop_cpio import archive
from interop_packages import BACKPORTS, KERNELS, USERLAND, Archive, Unavailable

LAYOUT = 1  # to be raised when what is built from the same packages changes
FRESH_S = 7 * 86_400
"""How long the cache is believed before the archive is asked for newer packages."""
MODULES = (
    "virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "ext4", "crc32c_generic", "crc32_pclmul",
    "overlay", "ib_uverbs", "rdma_rxe", "rdma_ucm",
    "sch_netem", "sch_ingress", "cls_matchall", "act_mirred", "ifb",
)  # fmt: skip
SPARE_BYTES = 16 << 20

_GUEST = Path(__file__).parent / "guest"
_NOT_UNPACKED = re.compile(
    r"(perl|libperl|perl-|udev|dpkg|usrmerge|adduser|passwd|debconf|libpam|tar_|init-system|sysvinit|libgdbm|"
    r"libfile-find|libnumber|libtext|libsemanage|libsepol|libsystemd|media-types|readline-common|lsb-base|kmod_)"
)
_LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/info")
_MERGED = ("bin", "sbin", "lib", "lib64")


@dataclass(frozen=True)
class Bootable:
    """A kernel of series ``series`` with its files; ``version`` as ``uname -r`` says it."""

    series: str
    version: str
    kernel: Path
    initrd: Path


@dataclass(frozen=True)
class Images:
    """All that was built: the root file system, the kernels by series, and why one is missing."""

    root: Path
    kernels: dict[str, Bootable]
    missing: dict[str, str]


def cache_folder() -> Path:
    """Where images are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "softhca-interop"


def images(tell: Callable[[str], None], refresh: bool = False) -> Images:
    """The images, built when there are none for the packages of today.

    ``tell`` hears what takes long.  Raises :class:`Unavailable` in one line.
    """
    for tool in ("apt-get", "apt-cache", "dpkg-deb", "mke2fs", "tar"):
        if shutil.which(tool, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin") is None:
            raise Unavailable(f"there is no {tool}")
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    listing = cache / "current"
    if not refresh and listing.exists() and time.time() - listing.stat().st_mtime < FRESH_S:
        found = _read(cache, listing)
        if found is not None:
            return found
    tell("asking Debian's archive for the guest's packages")
    try:
        return _build(cache, listing, tell)
    except Unavailable:
        found = _read(cache, listing) if listing.exists() else None
        if found is None:
            raise
        tell("Debian's archive cannot be reached; the guest of an earlier day is used")
        return found


def _read(cache: Path, listing: Path) -> Images | None:
    """What ``listing`` names, if it is all there and of this layout."""
    root: Path | None = None
    kernels, missing = {}, {}
    recipe = ""
    for line in listing.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "recipe":
            recipe = rest
        elif word == "root":
            root = cache / rest
        elif word == "kernel":
            series, version, folder = rest.split()
            kernels[series] = Bootable(series, version, cache / folder / "vmlinuz", cache / folder / "initrd")
        elif word == "missing":
            series, _, missing[series] = rest.partition(" ")
            missing[series] = rest.partition(" ")[2]
    wanted = [path for kernel in kernels.values() for path in (kernel.kernel, kernel.initrd)]
    if recipe != _recipe() or root is None or not kernels:
        return None
    if not all(path.exists() for path in (root, *wanted)):
        return None
    return Images(root, kernels, missing)


def _recipe() -> str:
    """What these functions build, whatever the packages are: images of another recipe are not used."""
    return _key([], _init(), repr((MODULES, USERLAND)).encode())


def _key(paths: list[Path], *more: bytes) -> str:
    text = "\n".join([str(LAYOUT), *(path.name for path in paths)]).encode()
    return hashlib.sha256(b"\0".join([text, *more])).hexdigest()[:16]


def _build(cache: Path, listing: Path, tell: Callable[[str], None]) -> Images:
    packages = Archive(cache / "apt")
    packages.update()
    userland = packages.closure(USERLAND)
    root = cache / f"root-{_key(userland)}.ext4"
    if not root.exists():
        tell("unpacking the guest's root file system")
        _whole(root, lambda path: _make_root(userland, path))
    lines = [f"recipe {_recipe()}", f"root {root.name}"]
    for series, suite in KERNELS.items():
        if suite == BACKPORTS and not packages.backports:
            lines.append(f"missing {series} {packages.backports_reason}")
            continue
        package = packages.fetch(packages.kernel_package(suite))
        (busybox,) = (path for path in userland if path.name.startswith("busybox-static"))
        key = _key([package, busybox], _init(), repr(MODULES).encode())
        folder = cache / f"kernel-{key}"
        if not folder.exists():
            tell(f"unpacking {package.name}")
            _whole(folder, partial(_make_kernel, package, busybox))
        lines.append(f"kernel {series} {(folder / 'version').read_text()} {folder.name}")
    for old in [*cache.glob("root-*"), *cache.glob("kernel-*")]:
        if not any(old.name in line for line in lines):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    _whole(listing, lambda path: path.write_text("\n".join(lines) + "\n"))
    found = _read(cache, listing)
    if found is None:
        raise Unavailable("the images vanished while they were made")
    return found


def _whole(place: Path, make: Callable[[Path], object]) -> None:
    """Make ``place`` under another name first, so that nobody sees half of it."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="making-") as name:
        half = Path(name, place.name)
        make(half)
        half.replace(place)


def _init() -> bytes:
    return (_GUEST / "init").read_bytes()


def _unpack(package: Path, folder: Path) -> None:
    """The files of a package; links for folders stay links.  Owners do not matter."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as opened:
        unpacked = subprocess.run(
            ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(folder)],
            stdin=opened.stdout,
            check=False,
        )
    if opened.returncode or unpacked.returncode:
        raise Unavailable(f"cannot unpack {package.name}")


def _make_root(packages: list[Path], place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="root-") as name:
        root = Path(name)
        for folder in _MERGED:
            (root / "usr" / folder).mkdir(parents=True)
            (root / folder).symlink_to(f"usr/{folder}")
        for package in packages:
            if not _NOT_UNPACKED.match(package.name):
                _unpack(package, root)
        for folder in _LEFT_OUT:
            shutil.rmtree(root / folder, ignore_errors=True)
        for folder in ("dev", "proc", "run", "sys", "tmp", "root", "etc"):
            (root / folder).mkdir(exist_ok=True)
        for command in ("sh", "mount", "ls", "cat", "dmesg", "uname", "sleep", "kill", "mkdir"):
            path = root / "usr/bin" / command
            if not path.exists():
                path.symlink_to("busybox")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        make_file_system(root, place)


def make_file_system(folder: Path, place: Path) -> None:
    """An ext4 file system with the files of a folder, all root's, in the file ``place``."""
    used = sum(path.lstat().st_size + 4096 for path in folder.rglob("*"))
    blocks = (used + used // 8 + SPARE_BYTES) // 4096
    _run_quietly(
        ["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-O", "^has_journal", "-E", "root_owner=0:0",
         "-d", str(folder), str(place), str(blocks)]
    )  # fmt: skip


def _run_quietly(argv: list[str]) -> None:
    environment = os.environ | {"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{argv[0]}: {done.stderr.strip().splitlines()[-1]}")


def _make_kernel(package: Path, busybox: Path, folder: Path) -> None:
    """Kernel, version, and an initrd with busybox, the modules in their order of loading, and our init."""
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="linux-") as name:
        unpacked = Path(name)
        for each in (package, busybox):
            _unpack(each, unpacked)
        (kernel,) = unpacked.glob("boot/vmlinuz-*")
        version = kernel.name.removeprefix("vmlinuz-")
        modules = load_order(next(p for p in unpacked.glob("**/modules/*") if p.name == version), MODULES)
        shutil.copyfile(kernel, folder / "vmlinuz")
        shell = (unpacked / "bin/busybox").read_bytes()
    files = {f"modules/{module}.ko": (0o644, data) for module, data in modules.items()}
    files["modules/order"] = (0o644, "".join(f"{module}\n" for module in modules).encode())
    files |= {"init": (0o755, _init()), "bin/busybox": (0o755, shell)}
    files |= {f"{name}/": (0o755, b"") for name in ("dev", "proc", "lower", "upper")}
    (folder / "initrd").write_bytes(archive(files))
    (folder / "version").write_text(version)


def load_order(folder: Path, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """Modules below ``folder`` that ``wanted`` ones need, each behind what it depends on: name → content."""
    places = {_module_name(path): path for path in folder.glob("**/*.ko*")}
    built_in = {_module_name(Path(line)) for line in (folder / "modules.builtin").read_text().splitlines()}
    order: dict[str, bytes] = {}

    def take(name: str) -> None:
        if name in order or name in built_in:
            return
        if name not in places:
            raise Unavailable(f"the kernel of {folder.name} has no module {name}")
        data = _content(places[name])
        for needed in _needs(data):
            take(needed)
        order[name] = data

    for name in wanted:
        take(name)
    return order


def _module_name(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _needs(module: bytes) -> list[str]:
    found = re.search(rb"\0depends=([^\0]*)\0", module)
    return [name.replace("-", "_") for name in found[1].decode().split(",") if name] if found else []
