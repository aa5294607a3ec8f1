"""A virtual environment in a moment: ``python3 release/environment.py FOLDER``.

``python -m venv`` has pip install itself, and before Python 3.12 setuptools too, from the wheels that come
with Python, and compile every file of both: nearly all of its time.  Here the same wheel of pip is unpacked
where it belongs; what of it is used is compiled then.  Where there is no such wheel, ``python -m venv`` has
to do.
"""

from __future__ import annotations

import ensurepip
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

PIP = """#!{python}
import sys

from pip._internal.cli.main import main

sys.exit(main())
"""


def wheel_of_pip() -> Path | None:
    """The newest wheel of pip that ensurepip would install, as Python or its distributor has put it."""
    places = [Path(ensurepip.__file__).with_name("_bundled")]
    places += filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR"), "/usr/share/python-wheels"])
    for place in places:
        found = sorted(Path(place).glob("pip-*.whl"), key=lambda path: path.stat().st_mtime)
        if found:
            return found[-1]
    return None


def make(folder: Path) -> None:
    """Make the environment, with a pip that ``python -m pip`` and ``bin/pip`` start."""
    wheel = wheel_of_pip()
    if wheel is None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        return
    venv.create(folder, symlinks=True)
    python = folder.resolve() / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    command = python.with_name("pip")
    command.write_text(PIP.format(python=python))
    command.chmod(0o755)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    make(Path(sys.argv[1]))
