"""What the machine offers below Python: addresses, shared words, copies, CRCs, bursts of datagrams.

``primitives`` says it in Python over ``ctypes``; where it is compiled, the same in C
(``compiled_primitives``).
"""
