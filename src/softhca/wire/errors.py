"""What the tools' side of this package raises; the hot path returns drop reasons instead (``drops.py``)."""


class WireError(ValueError):
    """Bytes that are not what they should be, or a value that does not fit its field.  One line."""


class CaptureError(WireError):
    """A capture file that is damaged, of an unknown kind, or beyond the reader's bounds."""
