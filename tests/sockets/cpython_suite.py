"""CPython's own ``test.test_socket`` with softhca's sockets in place of the kernel's.

``python cpython_suite.py [CASE …]`` runs the classes that are about what this module replaces, from the
``test`` package of the Python that runs it, and prints counts as JSON: run, passed, skipped, failed (names),
and how many connections of the passed ones went by RDMA.
"""

from __future__ import annotations

import json
import sys
import unittest

from softhca.sockets import creation, replacing, stream

CASES = (
    "BasicTCPTest",
    "BasicTCPTest2",
    "NonBlockingTCPTests",
    "FileObjectClassTestCase",
    "UnbufferedFileObjectClassTestCase",
    "LineBufferedFileObjectClassTestCase",
    "SmallBufferedFileObjectClassTestCase",
    "UnicodeReadFileObjectClassTestCase",
    "UnicodeWriteFileObjectClassTestCase",
    "UnicodeReadWriteFileObjectClassTestCase",
    "NetworkConnectionNoServer",
    "NetworkConnectionAttributesTest",
    "NetworkConnectionBehaviourTest",
    "TCPTimeoutTest",
    "BufferIOTest",
    "SendmsgTCPTest",
    "RecvmsgTCPTest",
    "RecvmsgIntoTCPTest",
    "ContextManagersTest",
    "InheritanceTest",
    "NonblockConstantTest",
    "SendfileUsingSendTest",
    "SendfileUsingSendfileTest",
    "CreateServerTest",
    "CreateServerFunctionalTest",
    "GeneralModuleTests",
    "TestExceptions",
    "SocketPairTest",
    "BasicUDPTest",
    "UDPTimeoutTest",
    "SendmsgUDPTest",
    "RecvmsgUDPTest",
    "RecvmsgIntoUDPTest",
)


def main() -> int:
    """Run; the exit status."""
    replacing.install()
    import test.test_socket as suite

    made = 0
    original = stream.Stream.__init__

    def counted(self: stream.Stream, *arguments: object) -> None:
        nonlocal made
        made += 1
        original(self, *arguments)  # type: ignore[arg-type]

    stream.Stream.__init__ = counted  # type: ignore[method-assign]
    suite.setUpModule()
    with creation.create_server(("127.0.0.1", 0)) as server:  # the library's threads are there from here on
        for end in creation.create_connection(server.getsockname()), server.accept()[0]:
            end.fileno()
            end.close()
    tests = unittest.TestSuite()
    for name in sys.argv[1:] or CASES:
        if "." in name or hasattr(suite, name):
            tests.addTest(unittest.defaultTestLoader.loadTestsFromName(name, suite))
    result = unittest.TextTestRunner(verbosity=2 if sys.argv[1:] else 1, stream=sys.stderr).run(tests)
    failed = [test.id().partition("test_socket.")[2] for test, _ in [*result.failures, *result.errors]]
    counts = {
        "run": result.testsRun,
        "passed": result.testsRun - len(result.skipped) - len(failed),
        "skipped": len(result.skipped),
        "failed": failed,
        "streams": made,
    }
    print(json.dumps(counts))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
