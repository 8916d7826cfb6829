"""The server of the lab: what it answers, whom it refuses, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import vrtd
from vrtd.cli import main
from vrtd.errors import InvalidInputError
from vrtd.lab.computation import Computation
from vrtd.lab.server import LabServer
from vrtd.lab.settings import LabSettings

SMALL = "algorithm=td&also=&n_gradients=1000&n_features=2"


@pytest.fixture(scope="module")
def server() -> Iterator[LabServer]:
    with LabServer(Computation()) as running:
        thread = Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(
    server: LabServer, path: str, method: str = "GET", token: str | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"/{server.token if token is None else token}/{path}", headers=given)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, dict(response.headers.items()), body


def test_it_listens_on_loopback_with_a_new_token_each_time(server: LabServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert re.fullmatch(rf"http://127\.0\.0\.1:{server.server_port}/[\w-]{{32}}/", server.address)
    with LabServer(Computation()) as other:
        assert other.token != server.token


def test_the_page_and_its_files_are_small_and_may_load_nothing_else(server: LabServer) -> None:
    size = 0
    for path, kind in (("", "text/html"), ("lab.css", "text/css"), ("lab.js", "text/javascript")):
        status, headers, body = ask(server, path)
        assert status == 200
        assert headers["Content-Type"] == f"{kind}; charset=utf-8"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "://" not in body
        size += len(body)
    assert size < 500_000


def test_the_stored_page_of_the_documentation_is_that_of_the_lab() -> None:
    """After a change of the page or of a preset, run examples/lab_gallery.py."""
    stored = (Path(__file__).parents[3] / "docs" / "_static" / "lab.html").read_text()
    page = files("vrtd.lab").joinpath("page")
    for name in ("lab.css", "lab.js"):
        assert page.joinpath(name).read_text() in stored
    (data,) = re.findall(r'<script type="application/json" id="answers">(.*?)</script>', stored)
    setup = json.loads(json.dumps(Computation().describe()))
    assert json.loads(data)["setup"] == setup
    assert len(stored.encode()) < 500_000


def test_questions_are_answered(server: LabServer) -> None:
    assert json.loads(ask(server, "setup")[2])["n_runs"] == 1000
    settings = LabSettings(algorithm="td", also=(), n_gradients=1000, n_features=2)
    for question in ("runs", "exact", "map"):
        status, _, body = ask(server, f"{question}?{SMALL}")
        assert status == 200
        arguments = (settings,) if question == "map" else (settings, "td")
        assert json.loads(body) == json.loads(json.dumps(getattr(server.computation, question)(*arguments)))
    assert "vrtd.TD(step_size=0.1)" in json.loads(ask(server, f"code?{SMALL}")[2])["code"]
    assert json.loads(ask(server, f"runs?{SMALL}&of=td")[2])["algorithm"] == "td"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("step_size=-1", "step_size must be a number from 0.0001 to 10, but is '-1'."),
        ("n_gradients=1e9", "n_gradients must be a whole number"),
        ("chain=own", "chain must be one of"),
        ("of=sarsa", "of must be an algorithm of the lab"),
        ("seed=1&seed=2", "given twice"),
        ("batch_size=10000&n_gradients=100", "n_gradients must be at least 20000, the length of one epoch"),
    ],
)
def test_wrong_settings_get_a_clear_answer(server: LabServer, query: str, message: str) -> None:
    status, _, body = ask(server, f"runs?{query}")
    assert status == 400
    assert message in json.loads(body)["error"]


@pytest.mark.parametrize("token", ["", "x", "x" * 32, "..", "%2e%2e"])
def test_a_wrong_token_is_refused(server: LabServer, token: str) -> None:
    for path in ("", "lab.js", "setup", "runs"):
        status, _, body = ask(server, path, token=token)
        assert status == 403
        assert server.token not in body


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_hosts_and_origins_are_refused(server: LabServer, headers: dict[str, str]) -> None:
    given = {name: value.format(port=server.server_port) for name, value in headers.items()}
    assert ask(server, "setup", **given)[0] == 403


def test_the_page_itself_is_answered(server: LabServer) -> None:
    own = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "setup", Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
    assert ask(server, "setup", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(server: LabServer, method: str) -> None:
    assert ask(server, "runs", method)[0] == 501


@pytest.mark.parametrize(
    "path", ["server.py", "../lab.js", "page/lab.js", "%2e%2e/server.py", "/etc/passwd", "lab.js/", "x"]
)
def test_no_other_file_is_reachable(server: LabServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_an_address_that_is_too_long_is_refused(server: LabServer) -> None:
    assert ask(server, f"runs?seed={'1' * 5000}")[0] == 403


def test_a_port_that_cannot_be_used_is_an_error(server: LabServer, capsys: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"port {server.server_port} cannot be used: .*in use"):
        LabServer(Computation(), server.server_port)
    for port in (-1, 65536, True, "80"):
        with pytest.raises(InvalidInputError, match="port must be a whole number from 0 to 65535"):
            LabServer(Computation(), port)  # type: ignore[arg-type]
    assert main(["lab", "--no-browser", "--port", str(server.server_port)]) == 2
    shown, noise = capsys.readouterr()
    assert shown == ""
    assert f"--port {server.server_port} cannot be used" in noise or "cannot be used" in noise
    assert main(["lab", "--no-browser", "--problem", "none.npz"]) == 2
    assert "none.npz does not exist" in capsys.readouterr().err


def test_ctrl_c_ends_the_lab() -> None:
    env = os.environ | {"PYTHONPATH": str(Path(vrtd.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    code = (  # without compiling loops
        "import sys; from vrtd.lab.computation import Computation; from vrtd.__main__ import main\n"
        "Computation.warm_up = lambda self, report: None\n"
        "sys.argv[1:] = ['lab', '--no-browser']; sys.exit(main())"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert re.fullmatch(r"The lab is at http://127\.0\.0\.1:\d+/[\w-]{32}/\n", process.stdout.readline())
            assert process.stdout.readline() == "Ctrl-C ends it.\n"
            process.send_signal(signal.SIGINT)
            rest, noise = process.communicate(timeout=30)
        finally:
            process.kill()
    assert rest == ""
    assert noise == "vrtd: the lab has ended\n"
    assert process.returncode == 0


def test_importing_the_command_loads_no_library() -> None:
    code = (
        "import sys; from vrtd.cli import main; main(['--help'])\n"
        "print([name for name in ('numpy', 'http.server', 'vrtd.lab') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip().endswith("[]")
