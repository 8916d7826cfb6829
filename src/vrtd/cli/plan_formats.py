"""Formats of a plan and its map: text, JSON and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vrtd.cli.formats import listed

if TYPE_CHECKING:
    from vrtd.theory import Choice, PhaseDiagram, Plan

_UNITS = {"gradients": "pseudo-gradients", "samples": "samples"}
_DRAWN = {"markov": "of one trajectory", "iid": "drawn independently"}


class PlanAnswer(NamedTuple):
    """Result of the command."""

    problem: dict[str, Any]
    plan: Plan
    map: PhaseDiagram | None
    instance_optimal: float | None  # n times the error of the closed form; None for a sample
    n_transitions: int | None  # size of the sample, if the plan is estimated
    seed: int


def as_json(answer: PlanAnswer, files: Mapping[str, Path]) -> dict[str, Any]:
    """Return the plan as plain JSON."""
    return answer.plan.as_dict() | {
        "problem": answer.problem,
        "seed": answer.seed,
        "n_transitions": answer.n_transitions,
        "instance_optimal": answer.instance_optimal,
        "map": None if answer.map is None else answer.map.as_dict(),
        "files": {kind: str(path) for kind, path in files.items()},
    }


def as_text(answer: PlanAnswer) -> str:
    """Return the goal, the map if there is one, the settings of both algorithms, and the advice."""
    plan = answer.plan
    lines = [f"problem    {_problem(answer)}"]
    if answer.n_transitions is not None:
        sample = f"{answer.n_transitions:,} transitions {_DRAWN[plan.sampling]}, seed {answer.seed}"
        lines.append(f"sample     {sample}; the plan uses nothing else")
    lines += [f"goal       {_asked(plan)}", f"start      squared error {plan.initial_error:.4g}"]
    if answer.map is not None:
        lines += ["", *_map_lines(answer.map)]
    choices = {"TD": plan.td, "VRTD": plan.vrtd}
    lines += ["", *_table(choices)]
    lines += ["", *(f"{name:<7}{_method(plan, choice)}" for name, choice in choices.items())]
    lines += ["", plan.advice]
    if answer.instance_optimal is not None:
        lines.append(_limit(plan, answer.instance_optimal))
    return "\n".join(lines)


def draw(panel: Any, answer: PlanAnswer) -> Any:
    """Draw the curves of the plan, or the map, and return the figure."""
    plan, diagram = answer.plan, answer.map
    if diagram is None:
        plan.plot(panel)
        settings = _asked(plan)
    else:
        diagram.plot(panel)
        prediction = diagram.prediction
        method = "exact" if prediction.basis == "exact" else f"VRTD by {prediction.describe()}"
        settings = f"{plan.sampling} sampling{_others(plan)}, {method}"
    panel.figure.suptitle(f"{_problem(answer)}\n{settings}", fontsize="small", wrap=True)
    return panel.figure


def _problem(answer: PlanAnswer) -> str:
    settings = dict(answer.problem)
    factor = settings.pop("features_divided_by", None)
    return listed(settings) + ("" if factor is None else f", features divided by {factor:.6g}")


def _asked(plan: Plan) -> str:
    unit = _UNITS[plan.objective]
    if plan.budget is None:
        goal = f"squared error {plan.target_error:g} with the fewest {unit}"
    else:
        goal = f"the lowest squared error with {plan.budget:,} {unit}"
    return f"{goal}; {plan.sampling} sampling, {plan.mode} mode{_others(plan)}"


def _others(plan: Plan) -> str:
    """Return the settings that differ from the defaults."""
    settings = plan.best.algorithm.settings | ({} if plan.vrtd is None else plan.vrtd.algorithm.settings)
    radius, output = settings["radius"], settings.get("output", "random")
    shown = "" if output == "random" else f", output {output}"
    return shown if radius is None else f"{shown}, radius {radius:.4g}"


def _table(choices: Mapping[str, Choice | None]) -> list[str]:
    rows = [["", "step size", "batch", "epochs", "pseudo-gradients", "samples", "squared error"]]
    for name, choice in choices.items():
        cells = ["-"] * 6
        if choice is not None:
            settings = choice.algorithm.settings
            epoch = [f"{settings['batch_size']:,}", f"{choice.n_epochs:,}"] if "batch_size" in settings else ["-", "-"]
            counts = [f"{choice.n_gradients:,}", f"{choice.n_samples:,}"]
            cells = [f"{settings['step_size']:.4g}", *epoch, *counts, f"{choice.error:.4g}"]
        rows.append([f"{name:<4}", *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _method(plan: Plan, choice: Choice | None) -> str:
    if choice is None:
        return "cannot reach the goal"
    if choice.interval is not None:
        low, high = choice.interval
        return f"{choice.method}; {low:.4g} to {high:.4g} with confidence {plan.confidence:g}"
    if choice.check is not None:
        error, standard_error, n_runs = choice.check
        return f"{choice.method}; {n_runs:,} simulated runs gave {error:.4g} +- {standard_error:.2g}"
    return f"{choice.method}{'; not simulated' if choice.prediction.basis == 'approximation' else ''}"


def _limit(plan: Plan, optimal: float) -> str:
    if plan.budget is None:
        assert plan.target_error is not None
        need = ceil(optimal / plan.target_error)
        here = f": {need:,} samples for this target" if need <= plan.best.n_samples else ""
    else:
        least = optimal / plan.budget
        here = f": {least:.4g} after {plan.budget:,}" if least <= plan.best.error else ""
    return f"The error of the closed form (LSTD) tends to {optimal:.4g} / n for n samples{here}."


def _map_lines(diagram: PhaseDiagram) -> list[str]:
    steps, batches = diagram.step_sizes, diagram.batch_sizes
    step, batch, error = diagram.best
    best = f"TD with step {step:.4g}" if batch == 1 else f"VRTD with step {step:.4g} and batch {batch:,}"
    lines = [
        f"map        {len(steps)} step sizes from {steps[0]:.3g} to {steps[-1]:.3g}, {len(batches)} batch sizes up to "
        f"{batches[-1]:,}; {diagram.budget:,} pseudo-gradients",
        f"best cell  {best}: squared error {error:.4g}",
        f"stability  TD below step {diagram.stability[0]:.3g}, VRTD with batch {batches[-1]:,} below "
        f"{diagram.stability[-1]:.3g}",
    ]
    if diagram.trusted is not None:
        lines.append(f"trust      VRTD's approximation to about 5 % up to step {diagram.trusted:.3g}")
    for name, mask in diagram.admissible.items():
        where = "nowhere on this map"
        if mask.any():
            share = mask[:, batches > 1].mean()
            largest, least = steps[mask.any(axis=1)].max(), batches[mask.any(axis=0)].min()
            where = f"in {share:.0%} of VRTD's cells, steps up to {largest:.3g}, batches from {least:,}"
        lines.append(f"theory     {name} applies {where}")
    return lines
