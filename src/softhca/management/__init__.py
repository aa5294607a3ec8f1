"""Management datagrams (IBTA vol. 1, chapter 13): their formats, the agents that answer them, and who gets
what arrives at queue pairs 0 and 1 of a port.

Nothing here knows a socket, a thread, a clock or a queue pair: bytes and addresses come in, bytes and
addresses go out.
"""
