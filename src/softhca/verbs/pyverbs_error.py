"""The three exceptions of the API."""

import os


class PyverbsError(Exception):
    """Base of everything that the verbs API raises on purpose; a known ``error_code`` is spelled out in the
    text.
    """

    def __init__(self, msg: str, error_code: int = -1) -> None:
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(error_code)}"
        super().__init__(msg)


class PyverbsRDMAError(PyverbsError):
    """The device refused or failed; ``error_code`` is the errno, -1 when there is none."""

    def __init__(self, msg: str, error_code: int = -1) -> None:
        super().__init__(msg, error_code)
        self._error_code = error_code

    @property
    def error_code(self) -> int:
        """The errno of the failure, or -1."""
        return self._error_code


class PyverbsUserError(PyverbsError):
    """The arguments or the moment of the call were wrong; nothing was changed."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)
