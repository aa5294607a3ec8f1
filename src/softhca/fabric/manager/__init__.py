"""The fabric manager: a subnet manager and its subnet administration (IBTA vol. 1, 14.3, 14.4, chapter 15).

`FabricManager` (``manager.py``) is a state machine: datagrams and time come in, datagrams go out, and nothing
in it knows a port, a socket or a clock.
"""
