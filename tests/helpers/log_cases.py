"""Small logs for tests, and the plain form of pairing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from vrtd.logs import Chunk, Log

FIELDS = Chunk._fields[:-1]


def rows(log: Log) -> dict[str, np.ndarray | None]:
    """All rows of a log as whole arrays."""
    chunks = list(log.chunks())
    for chunk in chunks:
        check_chunk(chunk)
    whole = {name: [getattr(chunk, name) for chunk in chunks] for name in FIELDS}
    return {name: None if parts[0] is None else np.concatenate(parts) for name, parts in whole.items()}


def check_chunk(chunk: Chunk) -> None:
    """What a consumer may rely on."""
    n = chunk.reward.size
    assert n > 0
    assert chunk.observations.shape == chunk.next_observations.shape
    assert chunk.observations.dtype == chunk.next_observations.dtype
    assert chunk.observations.flags.c_contiguous
    assert chunk.next_observations.flags.c_contiguous
    for array, kind in ((chunk.reward, np.float64), (chunk.terminated, np.bool_), (chunk.truncated, np.bool_)):
        assert array.dtype == kind
        assert array.shape == (n,)
    for array, kind in ((chunk.weight, np.float64), (chunk.propensity, np.float64), (chunk.starts, np.bool_)):
        assert array is None or (array.dtype == kind and array.shape == (n,))
    assert chunk.action is None or (chunk.action.dtype in (np.int64, np.float64) and len(chunk.action) == n)


def same_bits(one: dict, other: dict) -> None:
    for name in FIELDS:
        a, b = one.get(name), other.get(name)
        if a is None or b is None:
            assert a is b, name
        else:
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            assert a.tobytes() == b.tobytes(), name


def episodic(n: int = 500, width: int = 3, seed: int = 0, dtype: type = np.float32) -> dict[str, np.ndarray]:
    """Arguments of from_arrays: steps with their successors, episodes of any length."""
    rng = np.random.default_rng(seed)
    end = rng.random(n)
    return {
        "observations": (10 * rng.standard_normal((n, width))).astype(dtype),
        "reward": rng.standard_normal(n),
        "next_observations": (10 * rng.standard_normal((n, width))).astype(dtype),
        "terminated": end < 0.05,
        "truncated": end > 0.95,
        "weight": rng.random(n) + 0.5,
    }


def paired_by_hand(observations, reward, terminated, truncated, episode, part_ends=(), episode_end=None):
    """Row by row: what pairing must give for one log whose files end before the rows `part_ends`."""
    n, out, reasons = len(reward), [], Counter()
    starts = starts_by_hand(terminated, truncated, episode, part_ends, episode_end)
    terminated = terminated.copy()
    for i in range(n):
        goes_on = continues(i, n, episode, part_ends)
        if episode_end == "terminated" and not truncated[i] and not goes_on:
            terminated[i] = True
        if terminated[i]:
            out.append([i, None, False])
        elif truncated[i]:
            reasons["truncated without a final observation"] += 1
        elif i + 1 < n and i + 1 not in part_ends and episode is not None and episode[i] != episode[i + 1]:
            reasons["the last of an episode without a final observation"] += 1
        elif i + 1 in part_ends and (episode is None or episode[i] != episode[i + 1]):
            reasons["the last of a file"] += 1
        elif i + 1 == n:
            reasons["the last of the log"] += 1
            continue
        else:
            out.append([i, i + 1, False])
            continue
        if not terminated[i] and out and out[-1][1] == i:
            out[-1][2] = True  # the row before bootstraps from the observation of the one that is dropped
    kept = np.array([i for i, _, _ in out], dtype=int)
    successors = np.zeros_like(observations[kept])
    for row, (_, j, _) in enumerate(out):
        if j is not None:
            successors[row] = observations[j]
    whole = {
        "observations": observations[kept],
        "reward": reward[kept],
        "next_observations": successors,
        "terminated": terminated[kept],
        "truncated": np.array([mark for _, _, mark in out], dtype=bool),
        "starts": starts[kept],
    }
    remarks = {f"{k:,} row{'s' if k > 1 else ''} dropped: {reason}" for reason, k in reasons.items()}
    return whole, remarks


def kept_by_hand(terminated, truncated, episode, part_ends, episode_end):
    """Row by row, where successors were recorded: the rows that are kept, and their flags and starts."""
    n, kept = len(terminated), []
    starts = None if episode is None else starts_by_hand(terminated, truncated, episode, part_ends)
    terminated, truncated = terminated.copy(), truncated.copy()
    for i in range(n):
        if episode is None or terminated[i] or truncated[i] or continues(i, n, episode, part_ends):
            kept.append(i)
        elif episode_end == "terminated":
            terminated[i] = True
            kept.append(i)
        elif episode_end == "drop":
            if kept and kept[-1] == i - 1 and i + 1 < n and not terminated[i - 1]:
                truncated[i - 1] = True  # nothing continues it any more
        else:
            truncated[i] = i + 1 < n  # the end of the log needs no mark
            kept.append(i)
    return kept, terminated[kept], truncated[kept], None if starts is None else starts[kept]


def starts_by_hand(terminated, truncated, episode, part_ends, episode_end=None):
    """Row by row: which rows are the first of an episode. The end of a file alone says nothing of that."""
    n = len(terminated)
    if episode is None and episode_end is None:
        part_ends = ()
    return np.array(
        [
            i == 0 or terminated[i - 1] or truncated[i - 1] or not continues(i - 1, n, episode, part_ends)
            for i in range(n)
        ],
        dtype=bool,
    )


def continues(i, n, episode, part_ends):
    """Whether row i + 1 is of the same episode, flags apart."""
    if i + 1 == n:
        return False
    return i + 1 not in part_ends if episode is None else bool(episode[i] == episode[i + 1])


def flip(path: Path, at: int, by: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= by
    path.write_bytes(content)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A copy, cut short or with random bits or bytes changed."""
    changed = bytearray(content)
    at = int(rng.integers(len(content)))
    match rng.integers(4):
        case 0:
            return content[:at]
        case 1:
            changed[at] ^= 1 << int(rng.integers(8))
        case 2:
            changed[at] ^= int(rng.integers(1, 256))
        case _:
            changed[at : at + 16] = rng.bytes(len(changed[at : at + 16]))
    return bytes(changed)
