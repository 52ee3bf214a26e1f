"""How the real daemon is reached: over TLS by its settings, and under a path prefix behind a proxy."""

import http.client
import json
import re
import signal
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from .certificates import certificate
from .daemon import RunningDaemon

PREFIX = "/gpu-7/watchdog"


def configured(folder: Path, text: str) -> RunningDaemon:
    (folder / "server.log").touch()
    config = folder / "watchdog.yaml"
    config.write_text(f"servers: [{{name: a, logs: [{folder}/server.log]}}]\ntelemetry: none\nstate_dir: none\nlisten: 127.0.0.1:0\n{text}")
    return RunningDaemon("--config", str(config))


# --- TLS --------------------------------------------------------------------------------------------------------------


def status(url: str, context: ssl.SSLContext) -> int:
    with urllib.request.urlopen(f"{url}/api/v1/status", context=context, timeout=10) as answer:
        return int(answer.status)


def serial(url: str) -> str:
    host, port = urllib.parse.urlsplit(url).netloc.split(":")
    return ssl.get_server_certificate((host, int(port)))


def test_https_by_settings_and_nothing_but_https(tmp_path: Path) -> None:
    certificate(tmp_path, "site")
    with configured(tmp_path, f"tls: {{cert: {tmp_path}/site.crt, key: {tmp_path}/site.key}}\n") as daemon:
        assert daemon.url.startswith("https://127.0.0.1:")
        assert status(daemon.url, ssl.create_default_context(cafile=tmp_path / "site.crt")) == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            status(daemon.url, ssl.create_default_context())
        with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
            urllib.request.urlopen(daemon.url.replace("https:", "http:") + "/healthz", timeout=10)
        assert status(daemon.url, ssl.create_default_context(cafile=tmp_path / "site.crt")) == 200, "still well"


def test_a_renewed_certificate_is_taken_up_by_a_reload_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    certificate(tmp_path, "site")
    with configured(tmp_path, f"tls: {{cert: {tmp_path}/site.crt, key: {tmp_path}/site.key}}\n") as daemon:
        first = serial(daemon.url)
        certificate(tmp_path, "site")
        assert serial(daemon.url) == first
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda: any("reloaded" in line for line in daemon.errors))
        second = serial(daemon.url)

        (tmp_path / "site.key").write_text("no key any more")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda: any("site.key" in line and "reload refused" in line for line in daemon.errors))

        assert second != first
        assert serial(daemon.url) == second


def test_clients_must_show_a_certificate_where_a_client_ca_is_set(tmp_path: Path) -> None:
    certificate(tmp_path, "site")
    certificate(tmp_path, "client")
    settings = f"tls: {{cert: {tmp_path}/site.crt, key: {tmp_path}/site.key, client_ca: {tmp_path}/client.crt}}\n"
    with configured(tmp_path, settings) as daemon:
        stranger = ssl.create_default_context(cafile=tmp_path / "site.crt")
        known = ssl.create_default_context(cafile=tmp_path / "site.crt")
        known.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")

        assert status(daemon.url, known) == 200
        with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
            status(daemon.url, stranger)


# --- path prefix --------------------------------------------------------------------------------------------------------


@contextmanager
def proxied(upstream: str, *, strips: bool) -> Iterator[str]:
    """A reverse proxy that serves the daemon under the prefix and passes it on with or without it."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(PREFIX):
                self.send_error(404, "outside of the prefix")
                return
            path = (self.path.removeprefix(PREFIX) or "/") if strips else self.path
            connection = http.client.HTTPConnection(urllib.parse.urlsplit(upstream).netloc, timeout=10)
            connection.request("GET", path, headers={"Host": "watch.example"})
            answer = connection.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name in ("content-type", "location"):
                if value := answer.getheader(name):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            connection.close()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def fetch(url: str) -> tuple[str, str]:
    """Text, and the address it came from after redirects."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode(), answer.url


@pytest.mark.parametrize("strips", [True, False])
def test_pages_documentation_and_api_work_under_a_prefix(tmp_path: Path, strips: bool) -> None:
    settings = f"root_path: {PREFIX}\nexternal_url: https://watch.example{PREFIX}\n"
    with configured(tmp_path, settings) as daemon, proxied(daemon.url, strips=strips) as outside:
        start = outside + PREFIX + ("/" if strips else "")  # a proxy that strips owns the bare prefix itself
        page, address = fetch(start)
        docs, docs_address = fetch(urllib.parse.urljoin(address, "./docs"))
        followed = {
            urllib.parse.urljoin(base, link)
            for text, base in ((page, address), (docs, docs_address))
            for link in re.findall(r'(?:href|src)="(\./[^"]+)"', text)
        } | {urllib.parse.urljoin(address, link) for link in re.findall(r"fetch\('([^']+)'", page) if not link.endswith("/")}

        assert address == f"{outside}{PREFIX}/"
        assert {f"{outside}{PREFIX}/{name}" for name in ("docs", "metrics", "openapi.json", "api/v1/changes")} <= followed
        for each in followed - {f"{outside}{PREFIX}/api/v1/changes"}:
            fetch(each)
        fetch(f"{outside}{PREFIX}/api/v1/changes?duration_s=0")
        assert json.loads(fetch(f"{outside}{PREFIX}/openapi.json")[0])["servers"] == [{"url": PREFIX}]
        assert f"https://watch.example{PREFIX}/api/v1/findings" in docs


def test_reading_needs_a_token_on_loopback_too_if_the_settings_say_so(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("planted-token")
    settings = f"auth: {{reads_need_token: true, tokens: [{{name: a, file: {tmp_path}/token}}]}}\n"
    with configured(tmp_path, settings) as daemon:
        for path in ("/api/v1/status", "/metrics", "/openapi.json"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                fetch(daemon.url + path)
            assert refused.value.code == 401
            refused.value.close()
            asked = urllib.request.Request(daemon.url + path, headers={"Authorization": "Bearer planted-token"})
            with urllib.request.urlopen(asked, timeout=10) as answer:
                assert answer.status == 200
        assert fetch(daemon.url + "/healthz")


