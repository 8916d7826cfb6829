"""Compiled primitives: pure functions on arrays and numbers, for one stream of transitions."""
