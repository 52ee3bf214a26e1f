"""`config check` refuses what `run` refuses, in the same words: a configuration that passed the one does not fail the other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.certificates import certificate, openssl

SECRET = "0123456789" * 4


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with its key, another key, and the key under a passphrase."""
    folder = tmp_path_factory.mktemp("keys")
    certificate(folder, "good")
    certificate(folder, "other")
    openssl("pkey", "-in", folder / "good.key", "-aes128", "-passout", "pass:x", "-out", folder / "locked.key")
    (folder / "garbage").write_text("-----BEGIN PRIVATE KEY-----\nno\n-----END PRIVATE KEY-----\n")
    (folder / "secret").write_text(SECRET)
    (folder / "short").write_text("short")
    (folder / "empty").write_text("")
    (folder / "tokens").write_text("ada write secret\n")
    return folder


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "CREDENTIALS_DIRECTORY"}
    return subprocess.run(
        [sys.executable, "-m", "sglang_watchdog", *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment
    )


BAD = {
    "tls: {cert: KEYS/good.crt, key: KEYS/nowhere}": "nowhere cannot be read: No such file",
    "tls: {cert: KEYS/good.crt, key: KEYS/other.key}": "other.key does not belong to the certificate",
    "tls: {cert: KEYS/good.crt, key: KEYS/garbage}": "garbage is no private key in PEM",
    "tls: {cert: KEYS/good.crt, key: KEYS/locked.key}": "locked.key is locked with a passphrase",
    "tls: {cert: KEYS/good.key, key: KEYS/good.key}": "good.key holds no certificate in PEM",
    "tls: {cert: KEYS/good.crt, key: KEYS/good.key, client_ca: KEYS/empty}": "empty holds no certificate in PEM",
    "notify: [{type: webhook, url: 'http://127.0.0.1:1/'}]": "exactly one of `secret_file`, `secret_credential`",
    "notify: [{type: webhook, url: 'http://127.0.0.1:1/', secret_file: KEYS/nowhere}]": "nowhere cannot be read",
    "notify: [{type: webhook, url: 'http://127.0.0.1:1/', secret_file: KEYS/short}]": "shorter than 24 bytes",
    "notify: [{type: webhook, url: 'http://127.0.0.1:1/', secret_credential: hook}]": "there is no systemd credential `hook`",
    "notify: [{type: alertmanager, urls: ['http://127.0.0.1:1/'], bearer_file: KEYS/nowhere}]": "nowhere cannot be read",
    "notify: [{type: alertmanager, urls: ['http://127.0.0.1:1/'], ca: KEYS/empty}]": "empty is empty",
    "notify: [{type: apprise, urls_file: KEYS/nowhere}]": "nowhere cannot be read",
    "auth: {tokens: [{name: ada, file: KEYS/nowhere}]}": "the token ada: KEYS/nowhere cannot be read",
    "auth: {token_file: KEYS/nowhere}": "nowhere cannot be read",
    "auth: {token_file: KEYS/tokens}": "tokens:1:1: not `name scope[,scope] sha256:",
    "listen: no-such-host.invalid:17853\nauth: {tokens: [{name: ada, file: KEYS/secret}]}": "'no-such-host.invalid' has no address here",
    "listen: 0.0.0.0:0\nauth: {token_file: KEYS/empty}": "no token is configured",
    "servers: [{name: a, logs: ['journal:']}]": "nothing stands behind journal:",
}


@pytest.mark.parametrize("text", BAD)
def test_check_and_run_refuse_the_same_in_the_same_words(text: str, keys: Path, tmp_path: Path) -> None:
    config = tmp_path / "watchdog.yaml"
    servers = "" if "servers:" in text else f"servers: [{{name: a, logs: [{tmp_path}/server.log]}}]\n"
    config.write_text(f"{servers}telemetry: none\nstate_dir: none\n{text.replace('KEYS', str(keys))}\n")

    checked, started = command("config", "check", "--config", config), command("run", "--config", config)

    assert (checked.returncode, started.returncode) == (78, 78), (checked.stderr, started.stderr)
    assert BAD[text].replace("KEYS", str(keys)) in checked.stderr
    assert f"{config}:" in checked.stderr, "it says where"
    assert checked.stderr.strip() in started.stderr
    assert "Traceback" not in checked.stderr + started.stderr
    assert SECRET not in checked.stderr + started.stderr


def test_a_fault_in_a_signature_is_told_and_refused_only_when_asked_to(tmp_path: Path) -> None:
    """A start leaves the signature out and watches; a reload would be refused."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bad.yaml").write_text("id: bad\nkind: forbiden\nmatch: 3\n")
    config = tmp_path / "watchdog.yaml"
    config.write_text(f"signatures: {{paths: [{tmp_path}/own]}}\n")

    told, strict = command("config", "check", "--config", config), command("config", "check", "--strict", "--config", config)

    assert (told.returncode, strict.returncode) == (0, 78)
    assert "bad.yaml:2:" in told.stderr
    assert "bad.yaml:2:" in strict.stderr


def test_a_good_one_passes(keys: Path, tmp_path: Path) -> None:
    config = tmp_path / "watchdog.yaml"
    config.write_text(
        f"tls: {{cert: {keys}/good.crt, key: {keys}/good.key}}\nroot_path: /gpu-7/watchdog/\nlimits: {{burst: 10}}\n"
        f"notify: [{{type: webhook, url: 'http://127.0.0.1:1/', secret_file: {keys}/secret}}]\n"
    )

    assert command("config", "check", "--config", config).returncode == 0
