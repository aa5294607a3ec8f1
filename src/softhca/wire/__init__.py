"""Formats without state: one file a header, the opcode table, the CRCs, whole packets and capture files.

The hot path writes with ``build``, reads with ``packet_view`` and checks with ``icrc`` over a ``route``;
tools and tests use ``packet``, which holds a whole packet as headers.  What a header means is the standard's
(IBTA vol. 1).
"""
