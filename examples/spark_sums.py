"""Evaluate a policy from a Spark DataFrame: ``pip install pyspark`` and a Java runtime are needed.

python examples/spark_sums.py [n_rows]

The rows are those of random sessions. Spark distributes and sorts them, and each partition gives its sums.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pyarrow

import vrtd
from vrtd.spark import SCHEMA, partition_sums

NAMES = {
    "observations": ["n_items", "minutes"], "reward": "revenue", "episode": "session_id", "episode_end": "terminated",
}  # fmt: skip
N_PARTS = 8


def make_log(n: int) -> pyarrow.Table:
    rng = np.random.default_rng(0)
    log = {
        "session_id": np.cumsum(rng.random(n) < 0.1),
        "time": np.arange(n),
        "n_items": rng.integers(0, 9, n),
        "minutes": rng.exponential(5.0, n),
        "revenue": np.where(rng.random(n) < 0.02, rng.gamma(2.0, 20.0, n), 0.0),
    }
    return pyarrow.table(log)


def main(n_rows: int) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    try:
        log = make_log(n_rows)
        data = spark.createDataFrame(log).repartition(N_PARTS, "session_id").sortWithinPartitions("session_id", "time")
        # Features take their ranges from the first rows.
        first = vrtd.Evaluator(discount=0.95).fit(log.slice(0, 10_000), **NAMES)
        sums = data.mapInArrow(partition_sums(first.features, 0.95, n_parts=N_PARTS, **NAMES), SCHEMA)
        divided = vrtd.Sums.from_arrow(sums.toArrow()).to_evaluator()
    finally:
        spark.stop()
    whole = vrtd.Evaluator("closed_form", features=first.features, discount=0.95).fit(log, **NAMES)
    print("Spark:      ", divided.policy_value())
    print("one process:", whole.policy_value())
    np.testing.assert_allclose(divided.theta_, whole.theta_, rtol=1e-9)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
