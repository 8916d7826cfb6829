"""Compilation: cached on disk, safe against damage, and nothing heavy before it is needed."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.kernels import jit
from vrtd.kernels.digest import digest
from vrtd.kernels.jit import dynamics, kernel

PACKAGE = Path(vrtd.__file__).parent

SIMULATE = """
import vrtd
from numba.core import event
problem = vrtd.problems.random_mdp(seed=0)
with event.install_recorder("numba:compile") as recorder:
    result = vrtd.simulate(problem, vrtd.TD(0.1), n_runs=2, n_gradients=50)
print(len(recorder.buffer) > 0, result.theta.tobytes().hex())
"""


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("statement", ["import vrtd", "import vrtd; vrtd.__version__; dir(vrtd)", "import vrtd.cli"])
def test_importing_loads_no_heavy_library(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint([m for m in ('numpy', 'scipy', 'numba', 'matplotlib') if m in sys.modules])"
    assert python(code).strip() == "[]"


def test_everything_public_can_be_had() -> None:
    for name in vrtd.__all__:
        assert getattr(vrtd, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vrtd.nothing  # noqa: B018


@pytest.mark.slow
def test_a_new_process_compiles_nothing_and_damage_means_recompile(tmp_path: Path) -> None:
    cache = {"NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, bits = python(SIMULATE, **cache).split()
    assert compiled == "True"
    assert python(SIMULATE, **cache).split() == ["False", bits]

    files = sorted(tmp_path.rglob("*.nb?"))
    assert {path.suffix for path in files} == {".nbi", ".nbc"}
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content if path.suffix == ".nbc" else content[: len(content) // 2])
    assert python(SIMULATE, **cache).split() == ["True", bits]
    assert python(SIMULATE, **cache).split() == ["False", bits]


@pytest.mark.slow
def test_without_a_place_for_a_cache_it_still_runs(tmp_path: Path) -> None:
    """A file where the cache folder should be: nothing can be written there, whoever runs this."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    copy = tmp_path / "site" / "vrtd"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for room in ("kernels", "engine"):
        (copy / room / "__pycache__").write_text("")
    code = SIMULATE.replace("import vrtd\n", f"import sys; sys.path.insert(0, {str(copy.parent)!r}); import vrtd\n", 1)
    output = python(
        f"{code}\nassert vrtd.__file__.startswith({str(copy)!r})",
        NUMBA_CACHE_DIR=str(blocked / "below"),
        HOME=str(blocked),
        XDG_CACHE_HOME=str(blocked),
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert output.split()[0] == "True"


def test_a_loop_is_told_apart_by_all_that_it_depends_on() -> None:
    """Kernels that differ in code, in a constant, in a closure, or in a kernel that they call."""

    def make(constant: float, twice: bool) -> Any:
        @dynamics
        def inner(x: Any) -> Any:
            return 2.0 * x if twice else x

        @dynamics
        def outer(x: Any) -> Any:
            return inner(x) + constant

        return outer

    assert digest(make(1.0, True)) == digest(make(1.0, True))
    assert len({digest(make(c, twice)) for c in (1.0, 2.0) for twice in (True, False)}) == 4
    assert digest(dynamics(lambda x: x + 1)) != digest(dynamics(lambda x: x + 2))
    assert digest(np.zeros(2)) != digest(np.zeros(3))
    assert digest(kernel(lambda x: x)) != digest(dynamics(lambda x: x))


def test_a_digest_is_the_same_in_every_process() -> None:
    code = "import vrtd.engine.loop as loop; from vrtd.kernels.digest import digest; print(digest(loop.advance))"
    assert len({python(code, PYTHONHASHSEED=seed) for seed in "123"}) == 1


@pytest.mark.slow
def test_an_algorithm_of_ones_own_is_never_stale(tmp_path: Path) -> None:
    """The skeleton of CONTRIBUTING.md in a file of its own, run, edited, and run again with the same cache."""
    page = (PACKAGE.parent.parent / "CONTRIBUTING.md").read_text()
    skeleton = page.split("```python\n")[1].split("```")[0]
    run = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import vrtd, mine\n"
        "result = vrtd.simulate(vrtd.problems.random_mdp(), mine.ClippedTD(0.01), n_runs=2, n_gradients=50)\n"
        "print(result.theta.any())"
    )
    (tmp_path / "mine.py").write_text(skeleton)
    assert python(run, NUMBA_CACHE_DIR=str(tmp_path), PYTHONDONTWRITEBYTECODE="1").strip() == "True"
    (tmp_path / "mine.py").write_text(skeleton.replace("+= params.step_size", "+= 0.0 * params.step_size"))
    assert python(run, NUMBA_CACHE_DIR=str(tmp_path), PYTHONDONTWRITEBYTECODE="1").strip() == "False"


class Planted:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def test_the_cache_is_only_in_a_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.config, "CACHE_DIR", str(tmp_path))
    before = os.umask(0)
    try:
        folder = jit.cache_folder(digest)
    finally:
        os.umask(before)
    assert folder is not None
    assert folder.startswith(str(tmp_path))
    assert not Path(folder).stat().st_mode & 0o022
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert jit.cache_folder(digest) is None


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_file_that_others_can_write_is_not_unpickled(tmp_path: Path, mode: int) -> None:
    file = jit._CheckedFile(str(tmp_path), "loop", "stamp")
    index = Path(file._index_path)
    index.write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    index.chmod(mode)
    with pytest.raises(PermissionError, match="can be written by another user"):
        file.load("signature")
    index.unlink()
    before = os.umask(0)
    try:
        file.save("signature", 7)
        assert file.load("signature") == 7  # files of our own are safe under any umask
    finally:
        os.umask(before)
    data = next(tmp_path.glob("*.nbc"))
    data.chmod(mode)
    assert file.load("signature") is None
    assert not (tmp_path / "ran").exists()


FORK = """
import os, threading, time, warnings
import vrtd
warnings.simplefilter("ignore", DeprecationWarning)  # of forks while there are threads
problem = vrtd.problems.random_mdp()
inside, go = threading.Event(), threading.Event()
type(problem).theta_star.func = lambda _: (inside.set(), go.wait(20), 7)[-1]
other = vrtd.problems.random_mdp()
threading.Thread(target=lambda: problem.theta_star, daemon=True).start()
inside.wait(20)
child = os.fork()
if not child:
    go.set()
    os._exit(other.theta_star)
for _ in range(200):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.05)
else:
    os.kill(child, 9)
print(os.waitstatus_to_exitcode(status) if done else "hangs")
os._exit(0)
"""


def test_a_child_of_a_process_that_computes_does_not_hang() -> None:
    assert python(FORK).strip() == "7"
