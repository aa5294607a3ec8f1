"""Deterministic worlds: adapters, seeded faults and virtual time, watched by oracles."""
