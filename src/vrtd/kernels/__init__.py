"""Compiled primitives: pure functions on arrays and scalars, for one stream of transitions."""
