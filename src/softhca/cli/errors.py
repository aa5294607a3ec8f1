"""What a command says when it cannot do its work: one line and an exit status."""

FAILED = 1
USAGE = 2


class CommandError(Exception):
    """The thing asked for failed; the message is one line for the user.  Exit status 1."""

    status = FAILED


class UsageError(CommandError):
    """The command was asked for something that does not go together or is not supported.  Exit status 2."""

    status = USAGE
