"""Executors of ``concurrent.futures``: processes of this machine, Dask, Ray or any other, and tasks for them."""

from vrtd.executors.processes import ProcessExecutor as ProcessExecutor
from vrtd.executors.ray_executor import ray as ray
from vrtd.executors.tasks import check_executor as check_executor
from vrtd.executors.tasks import one_thread_for_linear_algebra as one_thread_for_linear_algebra
from vrtd.executors.tasks import run_tasks as run_tasks
