"""Ctrl-C while a command loads libraries, while it works and while it ends.

Each case is a process that interrupts itself at a chosen place, so that nothing depends on the clock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import vrtd
from vrtd.executors.processes import ignoring_interrupts

SMALL = ["simulate", "--runs", "2", "--gradients", "1000", "--quiet"]
BY_THE_SIGNAL = -signal.SIGINT

# As in a callback from C: Python prints an exception that is raised here, and goes on.
CALLBACK = """
import os, signal
class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
"""
INTERRUPTED_IMPORT = f"{CALLBACK}\nCallback()\nraise ImportError('half loaded')\n"


def python(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """This very package, and before it what lies in `path`."""
    paths = [str(each) for each in (path, Path(vrtd.__file__).parents[1]) if each is not None]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=120)


def working(code: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """This code, in a process whose command has begun its work."""
    start = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    return python(
        "-c", f"{start}from vrtd.cli.interrupts import raise_when_safe\nraise_when_safe()\n{dedent(code)}", path=path
    )


@pytest.mark.parametrize(
    ("library", "arguments"),
    [
        ("matplotlib", [*SMALL, "--figure", "f.png"]),
        ("matplotlib", ["evaluate", "--env", "FrozenLake-v1", "--discount", "0.9"]),
        ("numba", SMALL),
        ("scipy", ["plan", "--target-error", "0.1"]),
        ("numba", ["doctor"]),
    ],
)
def test_while_libraries_are_loaded_the_process_ends_at_once(
    tmp_path: Path, library: str, arguments: list[str]
) -> None:
    """And the interruption is neither lost nor taken for a library that is not there."""
    (tmp_path / f"{library}.py").write_text(INTERRUPTED_IMPORT)
    ended = python("-m", "vrtd", *arguments, path=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (BY_THE_SIGNAL, "", "")


def test_while_a_command_works_an_import_ends_first(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"{CALLBACK}\nCallback()\nimport time\ntime.sleep(0.1)\nis_whole = True\n")
    code = """
    import time
    try:
        import slow
        time.sleep(60)
    except KeyboardInterrupt:
        print(slow.is_whole)
    """
    ended = working(code, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def test_while_a_command_works_a_compilation_ends_first() -> None:
    code = f"""
    from threading import Lock
    numba = {{"__name__": "numba.core", "done": []}}
    exec({CALLBACK!r} + "def compile(): Callback(); done.append(True)", numba)
    held = Lock()
    try:
        numba["compile"]()
        with held, held:  # a signal wakes it, and nothing else does
            pass
    except KeyboardInterrupt:
        print(numba["done"])
    """
    ended = working(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[True]\n", "")


def test_an_interrupt_between_imports_and_compilations_is_raised_at_once() -> None:
    code = """
    import os
    try:
        os.kill(os.getpid(), signal.SIGINT)
        print("not raised")
    except KeyboardInterrupt:
        print("raised")
    """
    assert working(code).stdout == "raised\n"


def test_an_interrupt_that_python_ignores_in_a_callback_is_not_lost() -> None:
    """As in callbacks of weak references, which Matplotlib has many of."""
    code = f"""
    import sys, time
    exec({CALLBACK!r})
    try:
        Callback()
        time.sleep(60)
    except KeyboardInterrupt:
        print("raised")
    class Broken:
        def __del__(self):
            raise ValueError("shown as ever")
    Broken()
    """
    ended = working(code)
    assert (ended.returncode, ended.stdout) == (0, "raised\n")
    assert "KeyboardInterrupt" not in ended.stderr
    assert "ValueError: shown as ever" in ended.stderr


def test_the_first_interrupt_is_answered_at_once_and_only_once(tmp_path: Path) -> None:
    """Also where it has to wait for the end of an import."""
    (tmp_path / "slow.py").write_text(f"{CALLBACK}\nCallback()\nimport time\ntime.sleep(0.1)\n")
    code = """
    import os, sys, time
    from vrtd.cli.interrupts import end_at_once
    end_at_once()
    raise_when_safe("finishing")
    for interrupt in ("import slow; print('imported', file=sys.stderr); time.sleep(60)", "os.kill(os.getpid(), 2)"):
        try:
            exec(interrupt)
        except KeyboardInterrupt:
            print("raised", file=sys.stderr)
    """
    assert working(code, tmp_path).stderr == "vrtd: finishing\nimported\nraised\nraised\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "sent", "told"),
    [
        (100, signal.SIGINT, ["stopping", "interrupted"]),
        *(
            (
                1800,
                sent,
                ["finishing: writing the results so far", "the results from 1,500 rows are in out", "interrupted"],
            )
            for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ),
    ],
)
def test_an_interrupted_evaluation_says_that_it_writes(
    tmp_path: Path, step: int, sent: signal.Signals, told: list[str]
) -> None:
    code = """
    import os, signal, sys
    from vrtd.__main__ import main
    import vrtd.logs.environment as environment
    steps = iter(range(10**6))
    def policy(*_):
        if next(steps) == STEP:
            os.kill(os.getpid(), SENT)
        return 1
    environment.as_policy = lambda *_: lambda _seed: policy
    environment._CHUNK_ROWS = 500
    sys.exit(main())
    """
    lake = ["evaluate", "--env", "FrozenLake-v1", "--discount", "0.9", "--samples", "3000", "--quiet"]
    code = dedent(code).replace("STEP", str(step)).replace("SENT", str(int(sent)))
    ended = python("-c", code, *lake, "--algorithm", "closed_form", "--out", str(tmp_path / "out"))
    assert ended.returncode == 128 + sent
    assert ended.stderr.replace(f"{tmp_path}/", "").splitlines() == [f"vrtd: {line}" for line in told]
    assert ("stopped       interrupted after 1,500 rows" in ended.stdout) == (len(told) == 3)
    assert (tmp_path / "out" / "model.npz").exists() == (len(told) == 3)


def test_a_second_interrupt_ends_the_process_at_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"{CALLBACK}\nimport time\nCallback()\nCallback()\ntime.sleep(60)\n")
    ended = working("import slow", tmp_path)
    assert (ended.returncode, ended.stderr) == (BY_THE_SIGNAL, "")


def test_after_the_work_nothing_is_raised_into_the_end_of_the_process() -> None:
    code = """
    import atexit, os, signal, sys
    from vrtd.__main__ import main
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
    sys.exit(main())
    """
    ended = python("-c", dedent(code), *SMALL)
    assert (ended.returncode, ended.stderr) == (BY_THE_SIGNAL, "")
    assert "squared" in ended.stdout


def test_signal_handlers_of_the_caller_are_kept() -> None:
    """As a shell that ignores it for what runs in the background, or a program that calls a command."""
    code = """
    import signal, sys
    from vrtd.__main__ import main
    from vrtd.cli.interrupts import end_at_once, raise_when_safe
    for handler in (signal.SIG_IGN, lambda *_: None):
        signal.signal(signal.SIGINT, handler)
        main()
        raise_when_safe()
        end_at_once()
        assert signal.getsignal(signal.SIGINT) is handler
    """
    assert python("-c", dedent(code), "--version").stderr == ""


# Processes of an executor


@pytest.mark.parametrize("sent", ["SIGINT", "SIGHUP"])
def test_processes_of_an_executor_ignore_the_interrupt(sent: str) -> None:
    """A terminal sends it to them, too; the one that started them ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with ignoring_interrupts():
        ended = python("-c", f"import os, signal; os.kill(os.getpid(), signal.{sent}); print('at work')")
    assert (ended.returncode, ended.stdout) == (0, "at work\n")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before


@pytest.mark.parametrize("told", [b"", b"\x05", (100).to_bytes(8, "little") + b"half a call"])
def test_a_process_of_an_executor_ends_silently_with_its_caller(told: bytes) -> None:
    command = [sys.executable, "-c", "from vrtd.executors.processes import serve_calls; serve_calls()"]
    ended = subprocess.run(command, input=told, capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
