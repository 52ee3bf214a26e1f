"""Container files, as far as they can be judged without an engine: what is copied exists, nothing runs as root or writes its root."""

import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from sglang_watchdog.cli.main import main

from .test_systemd import UNIT
from .tools import ROOT
from .unit import directives

DOCKER = ROOT / "deploy" / "docker"


def services() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]  # type: ignore[no-any-return]


def test_the_image_is_built_of_files_that_exist_and_are_let_through() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    let_through = {line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [source for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for source in line.split()[:-1]]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source in let_through, f"{source} is kept out of the build by Dockerfile.dockerignore"


def test_the_image_does_not_run_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert user == ("10001", "10001")
    assert text.index("USER ") < text.index("ENTRYPOINT")


@pytest.mark.parametrize("name", ["watchdog", "prometheus", "alertmanager", "grafana"])
def test_the_service_is_confined_and_pinned(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in service, "host network: nothing is published beyond loopback"
    if name != "watchdog":
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), "a release, never latest"


@pytest.mark.parametrize("name", ["watchdog", "prometheus", "alertmanager", "grafana"])
def test_what_is_mounted_exists(name: str) -> None:
    volumes = yaml.safe_load((DOCKER / "compose.yaml").read_text())["volumes"]
    for mount in services()[name]["volumes"]:
        source, target = mount.replace("${SGLANG_LOGS:-/var/log/sglang}", "/var/log/sglang").split(":")[:2]
        assert PurePosixPath(target).is_absolute()
        if source.startswith("."):
            assert (DOCKER / source).resolve().exists(), source
        elif not source.startswith("/"):
            assert source in volumes


def test_it_listens_on_loopback_only() -> None:
    for name in ("prometheus", "alertmanager"):
        assert any(option.startswith("--web.listen-address=127.0.0.1:") for option in services()[name]["command"])
    assert services()["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_its_configuration_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", str(DOCKER / "watchdog.yaml")]) == 0, capsys.readouterr().err


def test_it_gets_as_much_memory_as_the_service() -> None:
    assert services()["watchdog"]["mem_limit"] == directives(UNIT)["MemoryMax"][0].lower()
