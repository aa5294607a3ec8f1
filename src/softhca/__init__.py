"""softhca: a whole InfiniBand in user space.

What it has to say goes to the logger ``softhca`` and its children, silent until a program sets logging up.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
