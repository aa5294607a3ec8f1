"""What a command says when it cannot do its work: one line and an exit status."""

FAILED = 1
USAGE = 2


class CommandError(Exception):
    """The thing asked for failed; the message is one line for the user, and ``remedy`` says what to do.
    Exit status 1.
    """

    status = FAILED

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class UsageError(CommandError):
    """The command was asked for something that does not go together or is not supported.  Exit status 2."""

    status = USAGE
