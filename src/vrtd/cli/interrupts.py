"""Handling of Ctrl-C: it kills the process until a command begins its work, and raises KeyboardInterrupt afterwards.

SIGTERM, which `kill`, containers and batch systems send, and SIGHUP of a closed terminal are handled like Ctrl-C.

An exception during an import leaves a module half loaded, and the next import of it reports a missing library. In a
callback of Numba, an exception is ignored. Therefore `vrtd.__main__` leaves SIGINT to the system while libraries are
loaded, and KeyboardInterrupt is delayed while something is imported or compiled later. Python ignores exceptions in
other callbacks, too, such as those of weak references, of which Matplotlib has many: then the signal is sent again.
"""

from __future__ import annotations

import signal
import sys
import time
from _thread import get_ident, interrupt_main, start_new_thread
from contextlib import suppress
from threading import main_thread
from types import FrameType

from vrtd.cli.terminal import tell

_SECONDS_BETWEEN_TRIES = 0.02
_signals = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_received: int = signal.SIGINT  # the last one
_is_waiting = False
_answer: str | None = None  # to the first Ctrl-C


def raise_when_safe(answer: str | None = None) -> None:
    """Raise KeyboardInterrupt on Ctrl-C from now on, unless the caller of the command line handles SIGINT.

    The same holds for SIGTERM and SIGHUP. If ending the work takes a while, the first one prints `answer` at once.
    """
    global _answer
    for each in _signals:
        if signal.getsignal(each) is signal.SIG_DFL:
            _answer = answer
            signal.signal(each, _on_interrupt)
            sys.unraisablehook = _on_unraisable


def answer_with(answer: str) -> None:
    """Change the answer to the first Ctrl-C, unless it has been pressed."""
    global _answer
    if _answer is not None:
        _answer = answer


def end_at_once() -> None:
    """Let Ctrl-C kill the process again, because the work is done."""
    for each in _signals:
        if signal.getsignal(each) is _on_interrupt:
            signal.signal(each, signal.SIG_DFL)
            sys.unraisablehook = sys.__unraisablehook__


def exit_code() -> int:
    """Return the exit code after an interruption, which tells the signal as shells do: 130 after Ctrl-C."""
    return 128 + _received


def _on_interrupt(signum: int, frame: FrameType | None) -> None:
    global _is_waiting, _answer, _received
    _received = signum
    answer, _answer = _answer, None
    if answer is not None:
        with suppress(RuntimeError):  # the interrupted code is printing to stderr
            tell(answer)
    if not _is_importing_or_compiling(frame):
        raise KeyboardInterrupt
    if _is_waiting:  # the second Ctrl-C
        end_at_once()
        signal.raise_signal(signum)
    _is_waiting = True
    # Not a threading.Thread, which needs locks that the interrupted code may hold.
    start_new_thread(_try_again, (get_ident(), signum))


def _on_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """Send the signal again if Python ignored the exception; print other exceptions."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        start_new_thread(_try_again, (main_thread().ident or 0, _received))
    else:
        sys.__unraisablehook__(ignored)


def _try_again(thread: int, signum: int) -> None:
    global _is_waiting
    time.sleep(_SECONDS_BETWEEN_TRIES)
    _is_waiting = False
    if sys.platform == "win32":
        interrupt_main()
    else:
        signal.pthread_kill(thread, signum)  # a signal also wakes a waiting thread


def _is_importing_or_compiling(frame: FrameType | None) -> bool:
    while frame is not None:
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        if library in ("numba", "llvmlite") or frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
