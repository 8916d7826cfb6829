"""Figure 3: the norm of the expected TD update on Mountain Car, and what it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.algorithms import TD, VRTD
from vrtd.arrays import Floats
from vrtd.metrics import QuadraticForm
from vrtd.paper.curves import curve_rows
from vrtd.paper.evidence import Claim, NumberCheck, over_runs, paired_ratio
from vrtd.paper.experiment import Experiment, Runner, Settings
from vrtd.paper.mountain_car.sweep import MAIN, settings
from vrtd.plots import AXIS_LABELS, Figure, draw_curve
from vrtd.problems import Simulator, mountain_car
from vrtd.problems.mountain_car import features_at, visited
from vrtd.tables import Table, Tables, rows, rows_where, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

States = tuple[Floats, Floats]  # before and after each test transition

_PAPER_BATCH = 1000


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    end, variants = settings["n_gradients"], settings["variants"]
    runner.expect(end * sum(variant["n_runs"] * len(variant["batch_sizes"]) for variant in variants))
    curve = np.arange(0, end + 1, settings["every"])
    window = np.arange(end, end - settings["last_gradients"], -settings["stride"])
    axis = np.union1d(curve, window)
    states: dict[Any, States] = {}
    curves: list[dict[str, Any]] = []
    floors: list[dict[str, Any]] = []
    for variant in variants:
        car = variant_car(settings, variant)
        if variant["time_limit"] not in states:  # on which alone they depend
            states[variant["time_limit"]] = drawn_states(settings, car)
        form = neu_on(car, *states[variant["time_limit"]])
        labels = {
            "bandwidth": variant["bandwidth"],
            "feature_seed": variant["feature_seed"],
            "limit": _limit(variant["time_limit"]),
        }
        td = np.empty(0)
        for M in variant["batch_sizes"]:
            method = TD(settings["step_size"]) if M == 1 else VRTD(settings["step_size"], M)
            result = runner.simulate(
                car, method, n_runs=variant["n_runs"], n_gradients=end, seed=settings["seed"], metrics=(form,),
                checkpoints=axis,
            )  # fmt: skip
            errors = result.values(form.name)[:, np.isin(axis, window)].mean(axis=1)
            td = errors if M == 1 else td
            common = labels | {"batch_size": M, "n_runs": result.n_runs}
            ratio, ratio_standard_error = paired_ratio(errors, td)  # run by run on the same transitions
            floors.append(
                common
                | over_runs(errors)
                | {
                    "ratio": ratio,
                    "ratio_standard_error": ratio_standard_error,
                    "n_diverged": int((result.diverged_at >= 0).sum()),
                }
            )
            if _is_main(variant):
                curves += curve_rows(common, result, np.isin(axis, curve))
    return {"curves": table(curves), "floors": table(floors)}


def variant_car(settings: Settings, variant: Mapping[str, Any]) -> Simulator:
    return mountain_car(
        variant["feature_seed"], settings["n_features"], settings["gamma"], variant["bandwidth"], variant["time_limit"]
    )


def drawn_states(settings: Settings, car: Simulator) -> States:
    """Transitions drawn without replacement from one long trajectory."""
    rng = np.random.default_rng(settings["test_seed"])
    steps = rng.choice(settings["n_test_steps"], settings["n_test"], replace=False)
    return visited(car, np.sort(steps), settings["test_seed"])


def neu_on(car: Simulator, before: Floats, after: Floats) -> QuadraticForm:
    """|mean of delta phi|^2 = |A theta + b|^2 over test transitions, each with the reward -1.

    A may be nearly singular. The centre is the smallest of those for which |A theta + b| is least, so that little is
    lost to rounding.
    """
    phi, phi_next = features_at(car, before), features_at(car, after)
    A = phi.T @ (car.params.gamma * phi_next - phi) / len(phi)
    b = -phi.mean(axis=0)
    centre = np.linalg.lstsq(A, -b)[0]
    return QuadraticForm("neu", A.T @ A, centre, float(np.sum((A @ centre + b) ** 2)))


def _is_main(variant: Mapping[str, Any]) -> bool:
    return all(variant[name] == value for name, value in MAIN.items())


def _is_shown(row: Mapping[str, Any]) -> bool:
    """Whether a row is of the variant whose curves are drawn."""
    main = MAIN["bandwidth"], MAIN["feature_seed"], _limit(MAIN["time_limit"])
    return (row["bandwidth"], row["feature_seed"], row["limit"]) == main


def _limit(time_limit: int | None) -> str:
    return "no limit" if time_limit is None else f"limit {time_limit}"


# Figures


def _draw_curves(axes: Axes, tables: Tables) -> None:
    curves = tables["curves"]
    for M in np.unique(curves["batch_size"]):
        part = rows_where(curves, batch_size=M)
        mean, se = part["mean"], part["standard_error"]
        draw_curve(
            axes, part["n_gradients"], mean, mean - 2 * se, mean + 2 * se,
            label="TD" if M == 1 else f"VRTD, M = {M}", x_label=AXIS_LABELS["n_gradients"], metric="neu",
        )  # fmt: skip
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _draw_variants(axes: Axes, tables: Tables) -> None:
    whole = rows_where(tables["floors"], batch_size=_PAPER_BATCH)
    bandwidths = np.unique(whole["bandwidth"])
    limits = dict.fromkeys(whole["limit"].tolist())
    for k, limit in enumerate(limits):
        part = rows_where(whole, limit=limit)
        seeds = part["feature_seed"]
        offset = (k + (seeds + 0.5) / (seeds.max() + 1)) / len(limits) - 0.5
        x = np.searchsorted(bandwidths, part["bandwidth"]) + 0.8 * offset
        label = f"{limit}, {part['n_runs'].min()} runs"
        axes.errorbar(x, part["ratio"], 2 * part["ratio_standard_error"], fmt="o", markersize=3, capsize=2, label=label)
        for place, row in zip(x, rows(part), strict=True):
            if _is_shown(row):
                axes.plot(
                    place, row["ratio"], linestyle="", marker="o", markersize=8, fillstyle="none", color="black",
                    label=f"Figure 3, {row['n_runs']} runs",
                )  # fmt: skip
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylim(0.25, 4.0)
    axes.set_yticks([0.25, 0.5, 1.0, 2.0, 4.0], ["0.25", "0.5", "1", "2", "4"])
    axes.set_yticks([], minor=True)
    axes.set_xticks(np.arange(bandwidths.size), [f"{bandwidth:g}" for bandwidth in bandwidths])
    axes.set_xlabel("g of the kernel exp(−g‖z − z′‖²), from wide to narrow")  # noqa: RUF001
    axes.set_ylabel(f"NEU of VRTD (M = {_PAPER_BATCH}) / NEU of TD")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


# Comparisons


def smaller_neu(floors: Table) -> list[NumberCheck]:
    """VRTD ends with a smaller NEU than TD: the paper's batch for every variant, larger ones beyond it."""
    found = []
    for row in rows(floors):
        M = row["batch_size"]
        if M > 1:
            stated = M == _PAPER_BATCH
            shown = ", draw 0, as in the figure" if _is_shown(row) else ""
            condition = f"g = {row['bandwidth']:g}, {row['limit']}{shown}"
            condition += "" if stated else f", M = {M}"
            quantity = f"NEU of VRTD / NEU of TD, M = {M}, draw {row['feature_seed']} of the features"
            estimate, se = row["ratio"], row["ratio_standard_error"]
            found.append(
                NumberCheck(
                    condition, quantity, estimate, se, row["n_runs"], below=1.0, basis="simulated", stated=stated
                )
            )
    return found


EXPERIMENT = Experiment(
    name="mountain-car",
    title="Mountain Car",
    place="Figure 3, Appendix",
    question="VRTD reaches a smaller norm of the expected TD update (NEU) than TD.",
    method=(
        "Gymnasium's dynamics, bit for bit, uniform random actions, reward -1, back to the start at the goal; discount "
        "0.95, step 0.2, from theta = zeros, 300,000 pseudo-gradients; NEU on 1000 fixed transitions of a separate "
        "trajectory. Chosen here: twenty random Fourier features, of the kernel exp(-g |z - z'|^2) on the standardised "
        "state, g = 5 for curves. "
        "The other variants (g = 1, 5, 20, five draws) take a tenth of the runs, with Gymnasium's limit of 200 steps a "
        "twentieth. NEU is averaged over the last 100,000 pseudo-gradients, every 499 (a multiple of 200 "
        "would always meet episodes at their end); VRTD's is compared with TD's run by run, on the same transitions."
    ),
    weight=53.0,
    settings=settings,
    measure=measure,
    figures=[
        Figure(
            "convergence",
            "Mean over runs with a band of two standard errors, every 10,000 pseudo-gradients; g = 5, draw 0, no "
            "time limit.",
            "curves",
            _draw_curves,
        ),
        Figure(
            "variants",
            "NEU of VRTD divided by that of TD, each averaged over the last 100,000 pseudo-gradients, with an interval "
            "of two standard errors: five draws of the features for each g. Below 1 VRTD is the better one.",
            "floors",
            _draw_variants,
        ),
    ],
)

CLAIMS = (
    Claim(
        name="figure-3-smaller-neu",
        place="Figure 3; Appendix, Mountain Car",
        statement="VRTD reaches a smaller norm of the expected TD update than TD on Mountain Car.",
        test=(
            "The ratio of the two, each averaged over the last 100,000 of 300,000 pseudo-gradients, with the paper's "
            f"step 0.2 and batch M = {_PAPER_BATCH}, for every kernel, draw of features and time limit."
        ),
        needs=("mountain-car",),
        evidence=lambda tables: smaller_neu(tables["mountain-car"]["floors"]),
        note=(
            "It depends on the features, which the paper does not specify. Without a limit the car's energy is still "
            "correlated after 1000 steps, so that a batch averages little away; and where the kernel is wide, both are "
            "still converging when the budget ends."
        ),
    ),
)
