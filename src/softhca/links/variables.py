"""Variables of the environment that put something between an adapter and its link.

They stand apart from what they ask for, which need not be imported where nobody does.
"""

CAPTURE = "SOFTHCA_CAPTURE"
"""Where packets are written to (`links.tap`)."""
FAULTS = "SOFTHCA_FAULTS"
"""What packets suffer (`links.faulty`)."""
