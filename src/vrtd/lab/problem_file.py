"""Problems of users, read from .npz files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vrtd.errors import DataError
from vrtd.files import check_regular, translate_errors
from vrtd.problems import LinearProblem, MarkovRewardProcess

_ARRAYS = ("P", "R", "gamma", "phi")


def read_problem(path: str | os.PathLike[str]) -> LinearProblem:
    """Read a chain with features from an .npz file.

    The file holds the arrays ``P``, ``R`` and ``gamma`` of a `MarkovRewardProcess` and the features ``phi`` of a
    `LinearProblem`. ``numpy.savez(path, P=P, R=R, gamma=0.9, phi=phi)`` writes it.

    Parameters
    ----------
    path : str or path-like
        Path of the file.

    Returns
    -------
    LinearProblem
        The chain with its features.

    Raises
    ------
    DataError
        If the file does not exist, is damaged or lacks an array.
    InvalidInputError
        If the arrays are not a chain with features.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/problem.npz", P=[[0.5, 0.5], [0.1, 0.9]], R=[1.0, 0.0], gamma=0.9, phi=[[1.0], [2.0]])
    ...     read_problem(f"{folder}/problem.npz")
    LinearProblem(MarkovRewardProcess(2 states, 4 transitions), 1 features)
    """
    with translate_errors(str(path)):
        check_regular(path)
        with np.load(Path(path), allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file.files]
            if missing:
                raise DataError(
                    f"{path} must hold the arrays P, R, gamma and phi, but lacks {' and '.join(missing)}.",
                    "Write it with numpy.savez(path, P=P, R=R, gamma=gamma, phi=phi).",
                )
            P, R, gamma, phi = (file[name] for name in _ARRAYS)
    return LinearProblem(MarkovRewardProcess(P, R, gamma), phi)
