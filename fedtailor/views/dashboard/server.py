"""Serves the dashboard's pages, documents and live changes over HTTP. It only reads, unless it may control runs."""

import io
import json
import tempfile
import threading
import zipfile
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedtailor.errors import UserError
from fedtailor.runs import Comparison, Run, export_client
from fedtailor.runs.folders import PLAN
from fedtailor.version import __version__
from fedtailor.views.dashboard import documents, form
from fedtailor.views.dashboard.access import Access
from fedtailor.views.dashboard.changes import changed, runs_below, stamp
from fedtailor.views.dashboard.control import Control
from fedtailor.views.dashboard.federation import federation_document
from fedtailor.views.dashboard.selected import selected_document
from fedtailor.views.html.markup import asset, standard
from fedtailor.views.html.report import comparison_report, run_report

EVERY = 0.5  # seconds between two looks at the files of the runs
HEARTBEAT = 15.0  # seconds after which a quiet stream says that it lives
STREAMS = 32  # most browsers that follow at the same time
MAX_SELECTED = 60  # most runs that are compared
SCRIPTS = ("base.js", "charts.js", "maps.js", "sorting.js", "views.js", "panels.js", "control.js", "dashboard.js")
ASSETS = dict.fromkeys(("style.css", "dashboard.css"), "text/css") | dict.fromkeys(SCRIPTS, "text/javascript")
LARGEST = 1_000_000  # bytes of a form
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
DOCUMENTS = [f"/api/{name}" for name in ["runs", "run", "client", "method", "federation", "data", "compare", "form"]]
WITHOUT_TOKEN = "Open the address that 'fedtailor dashboard' printed in the terminal: it holds the token.\n"


class Dashboard(ThreadingHTTPServer):
    """A server for the runs below a folder. Close it with `stop`."""

    daemon_threads = True

    def __init__(self, root: Path, access: Access, port: int = 0, control: bool = False, keys: Path | None = None):
        if control:
            root.mkdir(parents=True, exist_ok=True)
        if not root.is_dir():
            raise UserError(f"{root} does not exist: 'fedtailor run' writes runs there")
        if keys is not None and not keys.is_dir():
            raise UserError(f"--keys {keys} does not exist: name the coordinator's folder of keys")
        self.root, self.access, self.cache, self.keys = root, access, documents.DocumentCache(), keys
        self.stopping = threading.Event()
        self.streams = threading.BoundedSemaphore(STREAMS)
        try:
            super().__init__((access.host, port), Handler)
        except (OSError, OverflowError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise UserError(f"cannot listen at {access.host}:{port}: {said}; choose another --port") from None
        self.control = Control(root) if control else None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The address to open, with the token unless there is a password."""
        plain = f"http://{self.access.host}:{self.port}/"
        return plain if self.access.password else f"{plain}?token={self.access.token}"

    def folder(self, name: str) -> Path:
        """The folder of a run; only names of runs that are below the root are known."""
        found = runs_below(self.root).get(name)
        if found is None:
            raise UserError(f"there is no run {name!r} below {self.root}")
        return found

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.close()

    def running(self) -> int:
        """The number of runs that were started here and still run."""
        return 0 if self.control is None else self.control.running()

    def close(self) -> list[Path]:
        """Close the socket, stop the runs that were started here, and return the folders of those that stopped."""
        self.stopping.set()
        self.server_close()
        return [] if self.control is None else self.control.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""


class Handler(BaseHTTPRequestHandler):
    server: Dashboard
    protocol_version = "HTTP/1.1"
    server_version = f"fedtailor/{__version__}"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(asked.query).items()}
        access, port = self.server.access, self.server.port
        if access.foreign(dict(self.headers)):
            return self._send("requests from other origins are refused\n", status=HTTPStatus.FORBIDDEN)
        if asked.path == "/" and "token" in query and access.is_token(query["token"]):
            cookie = f"{access.cookie_name(port)}={access.token}; HttpOnly; SameSite=Strict; Path=/"
            # The token leaves the address bar, so that it is not copied with a link.
            return self._send("", status=HTTPStatus.SEE_OTHER, more={"Set-Cookie": cookie, "Location": "/"})
        if self._admitted():
            # A document for a page says itself what is wrong; a failed request would fill the browser's log.
            wrong = HTTPStatus.OK if asked.path in DOCUMENTS else HTTPStatus.UNPROCESSABLE_ENTITY
            self._checked(lambda: self._answer(asked.path, query), wrong)
        return None

    def do_POST(self) -> None:
        """Commands: only with ``--control``, from a page of this server that brings its token."""
        self.close_connection = True  # what a refused request sent is not read
        control, access = self.server.control, self.server.access
        if control is None:
            words = "this dashboard only reads: start it with --control to start, stop and resume runs"
            return self._json({"error": words}, HTTPStatus.FORBIDDEN)
        if not access.commands(dict(self.headers)):
            words = "requests from other origins, or without the token of the page, are refused"
            return self._json({"error": words}, HTTPStatus.FORBIDDEN)
        known = {
            "/api/preview": lambda body: control.preview(body["values"]),
            "/api/start": lambda body: control.start(body["values"]),
            "/api/stop": lambda body: control.stop(body["id"]),
            "/api/resume": lambda body: control.resume(body["id"]),
        }
        command = known.get(urlsplit(self.path).path)
        if command is None:
            return self._json({"error": "not found"}, HTTPStatus.NOT_FOUND)
        if self._admitted():
            self._checked(lambda: self._json(command(self._body())), HTTPStatus.OK)
        return None

    def _admitted(self) -> bool:
        """Whether the request brings token or password; if not, it is answered here."""
        access = self.server.access
        if access.admits(dict(self.headers), self.server.port):
            return True
        if access.password:
            ask = {"WWW-Authenticate": 'Basic realm="FedTailor", charset="UTF-8"'}
            self._send("the password is missing or wrong\n", status=HTTPStatus.UNAUTHORIZED, more=ask)
        else:
            self._send(WITHOUT_TOKEN, status=HTTPStatus.FORBIDDEN)
        return False

    def _checked(self, answer: Callable[[], None], wrong: HTTPStatus) -> None:
        """Answer, or say what is wrong, with this status."""
        try:
            answer()
        except UserError as error:
            document = {"error": str(error), "problems": form.placed(error)}
            self._json(document, wrong)
        except KeyError as missing:
            self._json({"error": f"the request lacks {missing}"}, HTTPStatus.BAD_REQUEST)

    def _body(self) -> dict[str, Any]:
        """The JSON document of a command."""
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= LARGEST:
                raise ValueError
            found = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            raise UserError("the request is not a JSON document of a form") from None
        if not isinstance(found, dict) or not isinstance(found.get("values", {}), dict):
            raise UserError("the request is not a JSON document of a form")
        return found

    def _answer(self, path: str, query: dict[str, str]) -> None:
        server = self.server
        known: dict[str, Callable[[], None]] = {
            "/": self._page,
            "/api/runs": lambda: self._json(self._runs()),
            "/api/run": lambda: self._json(self._run(query["id"])),
            "/api/client": lambda: self._json(documents.client_document(server.folder(query["id"]), query["client"])),
            "/api/method": lambda: self._json(server.cache.method(query["id"], server.folder(query["id"]))),
            "/api/federation": lambda: self._json(federation_document(server.folder(query["id"]), server.keys)),
            "/api/data": lambda: self._json(documents.data_document(server.folder(query["id"]), query.get("client"))),
            "/api/compare": lambda: self._json(self._compare(query["ids"])),
            "/api/model": lambda: self._model(query["id"], query["client"]),
            "/api/changes": self._changes,
            "/api/form": lambda: self._json(self._control().form(query.get("like"))),
            "/report": lambda: self._report(query["id"]),
        }
        name = path.removeprefix("/static/")
        if path in known:
            known[path]()
        elif path.startswith("/static/") and name in ASSETS:
            self._send(asset(name), ASSETS[name])
        else:
            self._send("not found\n", status=HTTPStatus.NOT_FOUND)

    def _page(self) -> None:
        """The page; if it may control runs, with the token that its commands bring."""
        token = self.server.access.page_token if self.server.control else ""
        scripts = "\n".join(f'<script src="/static/{name}"></script>' for name in SCRIPTS)
        self._send(asset("dashboard.html").replace("{scripts}", scripts).replace("{token}", token), "text/html")

    def _control(self) -> Control:
        if self.server.control is None:
            raise UserError("this dashboard only reads: start it with --control to start runs")
        return self.server.control

    def _runs(self) -> dict[str, Any]:
        found = runs_below(self.server.root)
        plans = sorted(str(plan.parent.relative_to(self.server.root)) for plan in self.server.root.rglob(PLAN))
        lines = [self.server.cache.line(name, folder) for name, folder in found.items()]
        mine = self.server.control.states() if self.server.control else {}
        return {"root": self.server.root.resolve().name, "runs": lines, "comparisons": plans, "mine": mine}

    def _run(self, name: str) -> dict[str, Any]:
        mine = self.server.control.states().get(name) if self.server.control else None
        return {**self.server.cache.run(name, self.server.folder(name)), "mine": mine}

    def _compare(self, ids: str) -> dict[str, Any]:
        names = [name for name in ids.split("\n") if name]
        if not 2 <= len(names) <= MAX_SELECTED:
            raise UserError(f"tick from 2 to {MAX_SELECTED} runs to compare")
        return selected_document([self.server.folder(name) for name in names])

    def _model(self, name: str, client: str) -> None:
        """The stored model of a client as a zip file; nothing is trained for it."""
        folder = self.server.folder(name)
        with Run(folder) as run:
            number = run.client(client)
            if not run.has_model(number):
                raise UserError(f"this run did not store its models: fedtailor export {folder} --client {number}")
        packed = io.BytesIO()
        with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(packed, "w") as archive:
            for file in sorted(export_client(folder, number, Path(place) / "model").iterdir()):
                archive.write(file, file.name)
        attachment = {"Content-Disposition": f'attachment; filename="client-{number}.zip"'}
        self._send(packed.getvalue(), "application/zip", more=attachment)

    def _report(self, name: str) -> None:
        """The report of a run or comparison, made now; it brings a policy of its own."""
        plans = {str(plan.parent.relative_to(self.server.root)): plan.parent for plan in self.server.root.rglob(PLAN)}
        if name in plans:
            text = comparison_report(Comparison(plans[name]))
        else:
            with Run(self.server.folder(name)) as run:
                text = run_report(run)
        self._send(text, "text/html", more={"Content-Security-Policy": "frame-ancestors 'none'"})

    def _changes(self) -> None:
        """A stream of server-sent events: the names of the runs that changed."""
        server = self.server
        if not server.streams.acquire(blocking=False):
            return self._send("too many browsers follow\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            self._start(HTTPStatus.OK, "text/event-stream", {"Connection": "close"})
            self.close_connection = True
            before, quiet = self._stamps(), 0.0
            self.wfile.write(b"event: ready\ndata: {}\n\n")
            self.wfile.flush()
            while not server.stopping.wait(EVERY):
                now, quiet = self._stamps(), quiet + EVERY
                if names := changed(before, now):
                    self.wfile.write(f"data: {json.dumps(names)}\n\n".encode())
                elif quiet >= HEARTBEAT:
                    self.wfile.write(b": here\n\n")
                else:
                    continue
                self.wfile.flush()
                before, quiet = now, 0.0
        except OSError:  # the browser went away
            pass
        finally:
            server.streams.release()
        return None

    def _stamps(self) -> dict[str, Any]:
        """What changes whenever a run does, and the states of the runs that were started here."""
        mine = self.server.control.states() if self.server.control else {}
        found = {name: stamp(folder) for name, folder in runs_below(self.server.root).items()}
        return {name: (found.get(name), mine.get(name)) for name in found.keys() | mine.keys()}

    def _json(self, document: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        text = json.dumps(standard(document), separators=(",", ":"), ensure_ascii=False)
        self._send(text, "application/json", status)

    def _send(
        self,
        content: str | bytes,
        kind: str = "text/plain",
        status: HTTPStatus = HTTPStatus.OK,
        more: dict[str, str] | None = None,
    ) -> None:
        data = content.encode() if isinstance(content, str) else content
        self._start(status, kind, {**(more or {}), "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _start(self, status: HTTPStatus, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        text = kind.startswith("text/") or kind == "application/json"
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8" if text else kind, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the address holds the token."""
