"""Write the presets of the lab into one page that works without a server.

Run ``python examples/lab_gallery.py [FOLDER]``. It writes ``lab.html`` and takes about half a minute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

from vrtd.errors import StabilityWarning
from vrtd.files import write_at_once
from vrtd.lab.chains import CHAINS
from vrtd.lab.code import write_code
from vrtd.lab.computation import Computation
from vrtd.lab.presets import PRESETS

DIGITS = 4  # as many as the page shows


def round_numbers(value: Any) -> Any:
    """Round all floats in plain values, which keeps the page small."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: round_numbers(each) for name, each in value.items()}
    return [round_numbers(each) for each in value] if isinstance(value, list | tuple) else value


def collect_answers() -> dict[str, Any]:
    """Compute what the lab answers for every preset."""
    computation, answers = Computation(), {}
    warnings.simplefilter("ignore", StabilityWarning)
    for name, preset in PRESETS.items():
        settings = preset.settings
        runs = {each: computation.runs(settings, each) for each in settings.shown}
        for other in settings.shown[1:]:  # only the mean of these is shown
            for part in ("curves", "n_samples", "q05", "q25", "q50", "q75", "q95"):
                del runs[other][part]
        answers[name] = {
            "runs": runs,
            "exact": {each: computation.exact(settings, each) for each in settings.shown},
            "map": computation.map(settings),
            "code": {"code": write_code(settings, CHAINS[settings.chain], computation.problem(settings))},
        }
    return round_numbers({"setup": computation.describe(), "answers": answers})


def build_page(answers: dict[str, Any]) -> str:
    """Return the page of the lab with its script, its style and the answers inside."""
    page, style, script = (
        files("vrtd.lab").joinpath("page", f"lab.{kind}").read_text() for kind in ("html", "css", "js")
    )
    data = json.dumps(answers, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    policy = "; ".join(
        [
            "default-src 'none'",
            *(
                f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
                for kind, text in (("script", script), ("style", style))
            ),
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    replacements = {
        '<link rel="icon" href="data:,">': f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="stylesheet" href="lab.css">': f"<style>{style}</style>",
        '<script defer src="lab.js"></script>\n': "",
        "</body>": f'<script type="application/json" id="answers">{data}</script>\n<script>{script}</script>\n</body>',
    }
    for old, new in replacements.items():
        assert page.count(old) == 1, old
        page = page.replace(old, new)
    return page


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/_static")
    with write_at_once(folder / "lab.html") as file:
        file.write(build_page(collect_answers()).encode())
    print(folder / "lab.html")
