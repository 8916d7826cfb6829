"""The Python that makes the picture of the lab."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from vrtd.algorithms import Algorithm
from vrtd.lab.bounds import choose_bounds, compute_bound
from vrtd.lab.chains import Chain
from vrtd.lab.computation import MAP_STEPS, N_CHECKPOINTS, why_no_exact_curve, why_no_map
from vrtd.lab.settings import ALGORITHMS, N_RUNS, LabSettings
from vrtd.problems import LinearProblem

_RUNS = """
axes, results = None, {}
for name, algorithm in algorithms.items():  # specialise=False: one compiled loop for all chains
    result = vrtd.simulate(problem, algorithm, n_runs=$n_runs, seed=$seed, specialise=False, **options)
    axes, results[name] = result.plot(axes, label=name), result
"""


def write_code(settings: LabSettings, chain: Chain, problem: LinearProblem) -> str:
    """Return Python that makes the same curves, bounds and map.

    Parameters
    ----------
    settings : LabSettings
        Settings of the lab.
    chain : Chain
        The chosen chain.
    problem : LinearProblem
        Its problem.

    Returns
    -------
    str
        The lines.
    """
    built, n = chain.code(settings), settings.n_gradients
    lines = ["import numpy as np\n"] if "np." in built else []
    lines += ["import vrtd\n", built, "algorithms = {"]
    lines += [f'    "{ALGORITHMS[name]}": {_as_call(settings.build(name))},' for name in settings.shown]
    options = {"sampling": settings.sampling, "n_gradients": n, "checkpoints": N_CHECKPOINTS}
    lines += ["}", f"options = {options!r}"]
    lines.append(_RUNS.replace("$n_runs", str(N_RUNS)).replace("$seed", str(settings.seed)))
    lines.append(f'main = algorithms["{ALGORITHMS[settings.algorithm]}"]')
    if not why_no_exact_curve(settings, problem, settings.algorithm):
        lines += ["exact = vrtd.theory.exact_curve(problem, main, **options)", 'exact.plot(axes, label="exact mean")']
    bounds = [call for call in choose_bounds(settings) if not isinstance(compute_bound(call, problem), str)]
    if bounds:
        lines += ["", "n_gradients = results[next(iter(results))].n_gradients"]
        lines.append("epochs = main.epoch(options['sampling']).epochs_at(n_gradients)")
        lines += ["theta_0 = [0.0] * problem.n_features", "bounds = {"]
        for label, function, arguments in bounds:
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            lines.append(f'    "{label}": vrtd.theory.{function}(problem, theta_0=theta_0, {given}),')
        lines += ["}", "for name, bound in bounds.items():"]
        lines.append('    axes.plot(n_gradients, bound.curve(epochs[-1])[epochs], ":", label=name)')
    lines += ['axes.set_yscale("log")', "axes.legend()", 'axes.figure.savefig("curves.png")', ""]
    if why_no_map(settings, problem):
        return "\n".join(lines)
    lines.append(f'kind = {{"sampling": "{settings.sampling}", "n_steps": {MAP_STEPS[settings.sampling]}}}')
    lines.append(f"diagram = vrtd.theory.phase_diagram(problem, budget={n}, **kind)")
    lines += ['diagram.plot().figure.savefig("map.png")', ""]
    return "\n".join(lines)


def _as_call(algorithm: Algorithm) -> str:
    """Return the expression that builds an algorithm, without fields that have their defaults."""
    declared = dataclasses.fields(cast("Any", algorithm))
    fields = {field.name: (getattr(algorithm, field.name), field.default) for field in declared}
    given = [
        f"{name}={value!r}" for name, (value, default) in fields.items() if name == "step_size" or value != default
    ]
    return f"vrtd.{type(algorithm).__name__}({', '.join(given)})"
