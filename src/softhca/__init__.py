"""softhca: a whole InfiniBand in user space."""
