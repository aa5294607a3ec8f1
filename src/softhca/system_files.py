"""Programs that look below ``/sys/class/infiniband`` find softhca's devices there.

The kernel knows nothing of them, so ``softhca run`` writes a folder like the kernel's for each copy of a
program (`softhca.cli.kernel_files`) and names it in `FOLDER`.  After `install`, functions of `os` and `open`
that are given a path below ``/sys/class/infiniband`` get the one below that folder; of all other paths
nothing changes.
"""

import builtins
import io
import os
from collections.abc import Callable
from typing import Any

FOLDER = "SOFTHCA_SYSTEM_FILES"
"""The variable that names the folder that stands for ``/sys``."""
PLACE = "/sys/class/infiniband"
FUNCTIONS = ("access", "listdir", "lstat", "open", "readlink", "scandir", "stat")
_SETS = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")


def mapped(path: Any, folder: str) -> Any:
    """``path`` below ``folder`` where it is `PLACE` or below it, as text; else ``path`` itself."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        return path  # a descriptor, or what the function refuses by itself
    inside = text == PLACE or text.startswith(PLACE + "/")
    return folder + text.removeprefix("/sys") if inside else path


class _Redirected:
    """A function whose first argument is a path; like a built-in one it is no method where it is a class's
    attribute.
    """

    def __init__(self, call: Callable[..., Any], folder: str) -> None:
        self.__wrapped__ = call
        self.__name__ = call.__name__
        self.__doc__ = call.__doc__
        self._folder = folder

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if arguments:
            arguments = (mapped(arguments[0], self._folder), *arguments[1:])
        elif "path" in keywords:
            keywords["path"] = mapped(keywords["path"], self._folder)
        return self.__wrapped__(*arguments, **keywords)


def install() -> None:
    """Redirect, where `FOLDER` names a folder; twice is once."""
    folder = os.environ.get(FOLDER, "")
    if not folder or isinstance(builtins.open, _Redirected):
        return
    for name in FUNCTIONS:
        call = getattr(os, name)
        redirected = _Redirected(call, folder)
        setattr(os, name, redirected)
        for each in _SETS:
            if call in getattr(os, each):
                getattr(os, each).add(redirected)
    builtins.open = io.open = _Redirected(builtins.open, folder)
