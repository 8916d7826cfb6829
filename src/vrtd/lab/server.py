"""The server of the lab: on this computer only, and only for who knows the random token in its address."""

from __future__ import annotations

import json
import os
import secrets
import sys
import warnings
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from vrtd.errors import InvalidInputError, StabilityWarning, VrtdError
from vrtd.lab.chains import OwnProblem
from vrtd.lab.code import write_code
from vrtd.lab.computation import Computation
from vrtd.lab.problem_file import read_problem
from vrtd.lab.settings import ALGORITHMS, parse_settings
from vrtd.problems import LinearProblem
from vrtd.progress import ProgressBar, show_progress

HOST = "127.0.0.1"
_PAGE = {
    "": ("lab.html", "text/html; charset=utf-8"),
    "lab.css": ("lab.css", "text/css; charset=utf-8"),
    "lab.js": ("lab.js", "text/javascript; charset=utf-8"),
}
_LONGEST_ADDRESS = 4096
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def serve(
    problem: LinearProblem | str | os.PathLike[str] | None = None,
    *,
    port: int = 0,
    open_browser: bool = True,
    announce: Callable[[str], Any] = print,
) -> None:
    """Open the lab in a browser, and serve it until Ctrl-C.

    The page is reachable from this computer only, at an address with a random token. All loops are compiled before it
    opens: this takes up to half a minute the first time and a few seconds later.

    Parameters
    ----------
    problem : LinearProblem, str, path-like or None, default=None
        Problem to show in addition to the named ones, or the path of its file (see ``read_problem``).
    port : int, default=0
        Port to listen on. 0 means any free port.
    open_browser : bool, default=True
        Open the page in the default browser.
    announce : callable, default=print
        Called with the address of the page when it is ready.

    Raises
    ------
    InvalidInputError
        If the port is in use or not allowed, or the problem is invalid.
    """
    own = None
    if isinstance(problem, LinearProblem):
        own = OwnProblem(problem, None)
    elif problem is not None:
        own = OwnProblem(read_problem(problem), os.fspath(problem))
    from threadpoolctl import threadpool_limits

    # The exact means multiply many small matrices, which threads would slow down.
    with LabServer(Computation(own), port) as server, warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", StabilityWarning)  # the page shows the stability limit
        with show_progress(True, ProgressBar, "compiling the loops") as report:
            server.computation.warm_up(report or (lambda _: None))
        announce(server.address)
        if open_browser:
            Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()  # some browsers block
        server.serve_forever(poll_interval=0.2)


class LabServer(ThreadingHTTPServer):
    """Server of the lab, which listens as soon as it is built.

    Parameters
    ----------
    computation : Computation
        Computes the answers.
    port : int, default=0
        Port to listen on. 0 means any free port.

    Attributes
    ----------
    token : str
        Random first part of every path.
    """

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # on Windows it would allow a second server on the same port

    def __init__(self, computation: Computation, port: int = 0) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 2**16:
            raise InvalidInputError(
                f"port must be a whole number from 0 to 65535, but is {port!r}.", "Pass such a number."
            )
        self.computation, self.token = computation, secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise InvalidInputError(
                f"port {port} cannot be used: {error.strerror or error}.", "Choose another port, or 0 for any free one."
            ) from None

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that has closed the connection; report anything else as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LabServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "vrtd", ""
    timeout = 60  # seconds without a request, after which a kept connection is closed
    disable_nagle_algorithm, wbufsize = True, 1 << 16  # an answer is sent at once, and not after its header is received

    def do_GET(self) -> None:  # the name that the base class calls
        problem = self._find_intrusion()
        if problem is not None:
            self._send_text(HTTPStatus.FORBIDDEN, problem)
            return
        _, _, rest = self.path[1:].partition("/")
        name, _, query = rest.partition("?")
        if name in _PAGE:
            file, kind = _PAGE[name]
            self._send(HTTPStatus.OK, files("vrtd.lab").joinpath("page", file).read_bytes(), kind)
            return
        try:
            answer = self._answer(name, query)
        except VrtdError as error:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        else:
            if answer is None:
                self._send_text(HTTPStatus.NOT_FOUND, "The lab has no such page.")
            else:
                self._send_json(HTTPStatus.OK, answer)

    def _find_intrusion(self) -> str | None:
        """Return why a request must be refused, or None.

        Another page in the browser can send requests to this server, but it knows no token and cannot choose the Host
        and the Origin. A name that resolves to this computer shows as another Host.
        """
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.headers.get("Host") not in hosts:
            return "This server answers to 127.0.0.1 and localhost only."
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return "This server answers to its own page only."
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "This server answers to its own page only."
        token, slash, _ = urlsplit(self.path).path[1:].partition("/")
        is_known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if not (slash and is_known) or len(self.path) > _LONGEST_ADDRESS:
            return "The address lacks the token that vrtd lab has printed."
        return None

    def _answer(self, name: str, query: str) -> Any:
        """Return the answer to a question of the page, or None if there is no such question."""
        computation = self.server.computation
        if name == "setup":
            return computation.describe()
        if name not in ("runs", "exact", "map", "code"):
            return None
        pairs = parse_qsl(query, keep_blank_values=True)
        texts = dict(pairs)
        if len(texts) < len(pairs):
            raise InvalidInputError("A setting of the lab is given twice.", "Give each setting once.")
        of = texts.pop("of", None)
        settings = parse_settings(texts, tuple(computation.chains))
        if name == "map":
            return computation.map(settings)
        if name == "code":
            return {"code": write_code(settings, computation.chains[settings.chain], computation.problem(settings))}
        algorithm = settings.algorithm if of is None else of
        if algorithm not in ALGORITHMS:
            raise InvalidInputError(f"of must be an algorithm of the lab, but is {algorithm!r}.", "Choose one of them.")
        return (computation.runs if name == "runs" else computation.exact)(settings, algorithm)

    def _send_json(self, status: HTTPStatus, answer: Any) -> None:
        body = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
        self._send(status, body, "application/json")

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._send(status, f"{text}\n".encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for header, value in _HEADERS.items():
            self.send_header(header, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Write nothing for each request."""
