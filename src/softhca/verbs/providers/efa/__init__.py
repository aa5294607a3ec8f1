"""Amazon EFA, which no software adapter is."""
