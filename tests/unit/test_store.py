"""Records of measurements: what decides whether one is kept."""

import math
import shutil
from pathlib import Path

import pytest

import vrtd
from vrtd import store


def test_every_file_that_decides_numbers_is_in_the_digest(tmp_path, monkeypatch):
    package = tmp_path / "vrtd"
    shutil.copytree(Path(vrtd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(store, "files", lambda name: package)

    def code_after(*changed):
        for part in changed:
            (package / part).write_bytes((package / part).read_bytes() + b"#")
        return store._code.__wrapped__()

    seen = {code_after()}
    for part in (
        "kernels/random.py",
        "engine/loop.py",
        "theory/moments.py",
        "paper/batch_sizes.py",
        "paper/table_1/floors.py",
        "problems/mountain_car.py",
        "problems/linear_problem.py",
    ):
        seen.add(code_after(part))
    assert len(seen) == 8
    shown = ("report/html.py", "cli/plan.py", "paper/page.py", "paper/wording.py", "tournament/figures.py", "plots.py")
    assert code_after(*shown) in seen


def test_json_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write_json({"x": math.nan}, tmp_path / "x.json")
