"""What a shell starts as ``softhca``: the command, with the collector of garbage out of the way.

A short command is the import of its modules and its end.  At both the collector would look, again and again,
at a hundred thousand objects of modules, none of which is garbage: that was a sixth of ``softhca devinfo``.
"""

import gc

NEW_OBJECTS = 50_000
"""So many objects must be new before the collector looks for garbage among them."""


def command() -> int:
    """Run the command of ``sys.argv``; returns its exit status."""
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    from softhca.cli.main import main

    try:
        return main()
    finally:
        gc.freeze()  # what is here now ends with the process, whose end looks at it three times otherwise
