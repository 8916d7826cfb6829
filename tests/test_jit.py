"""Compilation: cached on disk, safe against damage, and nothing heavy before it is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vrtd

PACKAGE = Path(vrtd.__file__).parent

SIMULATE = """
import vrtd
from numba.core import event
mrp, phi = vrtd.problems.random_mdp(seed=0)
with event.install_recorder("numba:compile") as recorder:
    result = vrtd.simulate(mrp, phi, vrtd.TD(0.1), n_runs=2, n_gradients=50)
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


def test_a_changed_kernel_file_changes_the_name_of_the_loop(tmp_path: Path) -> None:
    from vrtd.kernels.jit import sources_digest

    file = tmp_path / "simulator.py"
    file.write_text("a")
    before = sources_digest((str(file),))
    file.write_text("b")
    sources_digest.cache_clear()
    assert sources_digest((str(file),)) != before
