"""The host-fabric adapter's hardware as synthesizable Python (Amaranth): the remote-key manager, the
micro-engine and the interface blocks around them.

Everything here needs the extra ``softhca[hardware]``; the rest of softhca does not import it, and only the
command line does (`softhca.cli.rmb`), when it is asked to.  One clock domain, ``sync``, of `CLOCK_NS`.
What a block must do is said by a functional model elsewhere in the package (`softhca.adapter.remote_keys`,
`softhca.memory`); tests hold each block against it.
"""

CLOCK_NS = 8
"""One clock of every block: 125 MHz."""
