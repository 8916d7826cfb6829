"""Batches that grow from epoch to epoch."""

from __future__ import annotations

from vrtd.checks import check_exact_count, check_positive, require


def check_batches(batch_size: int, growth: float) -> None:
    """Raise unless ``batch_size`` is a positive integer and ``growth`` is above 1."""
    check_exact_count("batch_size", batch_size)
    check_positive("growth", growth)
    problem = f"growth must be above 1, or batches never reach all rows, but got {growth}."
    require(growth > 1.0, problem, "Pass a factor such as 2.")


def grow_batches(size: int, growth: float, n_rows: int) -> tuple[int, ...]:
    """Return the sizes of the batches that are smaller than the data set."""
    sizes = []
    while size < n_rows:
        sizes.append(int(size))
        size = max(int(min(size * growth, n_rows)), size + 1)
    return tuple(sizes)
