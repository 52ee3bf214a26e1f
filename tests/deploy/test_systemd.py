"""Units and scripts: clean for systemd, tight by its own measure, and installed by a script that says what it does."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .tools import ROOT, RUNBOOKS, run, tool
from .unit import DROP_INS, SYSTEMD, UNIT, directives

PROGRAM = "/opt/sglang-watchdog/bin/sglang-watchdog"


def laid_out(folder: Path, *drop_ins: Path) -> Path:
    """The unit in a folder as systemd would find it; the program is not installed here, so another one stands for it."""
    text = UNIT.read_text().replace(PROGRAM, str(shutil.which("true")))
    unit = folder / UNIT.name
    unit.write_text(text)
    for file in drop_ins:
        target = folder / f"{UNIT.name}.d" / file.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
    return unit


def exposure(unit: Path) -> float:
    said = run(tool("systemd-analyze"), "security", "--offline=true", "--no-pager", unit).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found is not None, said
    return float(found[1])


def test_the_units_are_clean_for_systemd(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    template = tmp_path / "sglang-watchdog@chat.service"
    template.write_text((SYSTEMD / "sglang-watchdog@.service").read_text().replace(PROGRAM, str(shutil.which("true"))))
    for unit in (laid_out(tmp_path, *DROP_INS), template):
        outcome = run(analyze, "verify", "--man=no", unit)
        assert outcome.returncode == 0, outcome.stderr
        assert "sglang-watchdog" not in outcome.stderr, outcome.stderr


def test_systemd_finds_the_unit_tight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"base": exposure(laid_out(tmp_path))}
    for file in DROP_INS:
        folder = tmp_path / file.stem
        folder.mkdir()
        scores[file.name] = exposure(laid_out(folder, file))
    with capsys.disabled():
        print("\nsystemd-analyze security:", ", ".join(f"{name} {score}" for name, score in scores.items()))
    assert scores["base"] <= 1.5
    assert max(scores.values()) <= 2.0


def test_the_unit_keeps_what_nvml_and_the_process_table_need() -> None:
    unit = directives(UNIT)
    assert unit["Type"] == ["notify"]
    assert unit["RestartPreventExitStatus"] == ["78"]
    assert not {"PrivateDevices", "ProtectProc", "ProcSubset", "BindsTo", "PartOf"} & set(unit)
    assert any(value.startswith("char-nvidia ") for value in unit["DeviceAllow"])
    assert unit["ExecStartPre"][0].endswith("config check")


def test_the_template_is_the_unit_for_one_configuration_file() -> None:
    one, many = directives(UNIT), directives(SYSTEMD / "sglang-watchdog@.service")
    named = {name for name in one | many if one.get(name) != many.get(name)}
    assert named == {"Description", "Documentation", "ExecStartPre", "ExecStart", "ExecReload", "StateDirectory"}
    for name in ("ExecStartPre", "ExecStart"):
        assert many[name] == [f"{value} --config /etc/sglang-watchdog/%i.yaml" for value in one[name]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    import sys

    built = run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", folder, ROOT)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def script(name: str, *options: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    import os

    return run(SYSTEMD / name, *options, env={**os.environ, **environment})


def test_a_dry_run_shows_every_step_and_takes_none(tmp_path: Path) -> None:
    outcome = script("install.sh", "--dry-run", "--root", tmp_path, "--with", "journal,file-logs")
    assert outcome.returncode == 0, outcome.stderr
    assert f"+ install -D -m 0644 {UNIT}" in outcome.stdout
    assert "journal.conf" in outcome.stdout
    assert list(tmp_path.iterdir()) == []


def test_installing_twice_changes_nothing_and_uninstalling_leaves_what_is_yours(tmp_path: Path, wheel: Path) -> None:
    options: tuple[str | Path, ...] = ("--root", tmp_path, "--wheel", wheel, "--with", "journal")
    first = script("install.sh", *options, PIP_NO_DEPS="1")  # the dependencies are proved by `make run`
    assert first.returncode == 0, first.stdout + first.stderr
    assert (tmp_path / "opt/sglang-watchdog/bin/sglang-watchdog").exists()
    assert {page.name for page in (tmp_path / "opt/sglang-watchdog/share/runbooks").iterdir()} == {page.name for page in RUNBOOKS.glob("*.md")}
    yours = tmp_path / "etc/sglang-watchdog/watchdog.yaml"
    yours.write_text("listen: 127.0.0.1:17999\n")
    before = snapshot(tmp_path / "etc")

    second = script("install.sh", *options, PIP_NO_DEPS="1")
    assert second.returncode == 0, second.stderr
    assert snapshot(tmp_path / "etc") == before
    assert not re.search(r"^\+ (install|ln|mkdir)", second.stdout, re.MULTILINE), second.stdout

    removed = script("uninstall.sh", "--root", tmp_path)
    assert removed.returncode == 0, removed.stderr
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*")) if path.is_file()] == ["etc/sglang-watchdog/watchdog.yaml"]
    script("uninstall.sh", "--root", tmp_path, "--purge")
    assert not yours.exists()


def snapshot(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_unknown_drop_in_is_refused_by_name(tmp_path: Path) -> None:
    outcome = script("install.sh", "--dry-run", "--root", tmp_path, "--with", "jurnal")
    assert outcome.returncode == 1
    assert "no drop-in jurnal" in outcome.stderr
    assert "journal" in outcome.stderr
