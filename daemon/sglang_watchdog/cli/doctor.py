"""`sglang-watchdog doctor`: what can be seen from here, what not, and how to mend it."""

import argparse
import asyncio
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog doctor", description="What can be seen from here: servers, logs, journal, GPUs, port; and how to mend what cannot.",
        epilog="Exit codes: 0 all can be seen, 1 something cannot (✗).",
    )
    p.add_argument("--format", choices=("text", "json"), default="text")
    p.add_argument("--port", type=int, default=17853)
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    report = {
        "installation": _installation(),
        "servers": _servers(),
        "logs": _logs(),
        "gpus": asyncio.run(_gpus()),
        "port": _port(options.port),
    }
    if options.format == "json":
        print(json.dumps(report, indent=1, default=str))
    else:
        _print(report)
    return 1 if any(row["state"] != "ok" for rows in report.values() for row in rows) else 0


def _installation() -> list[dict[str, str]]:
    from ..library.load import load
    from ..scan.patterns import compile_patterns
    from .main import version

    loaded = load()
    engine = compile_patterns(loaded.library).search.name
    rows = [_good(f"sglang-watchdog {version()}, Python {sys.version.split()[0]}, {len(loaded.library.signatures)} signatures, searched by {engine}")]
    return rows + [_bad(fault.render().splitlines()[0], "mend or remove that file") for fault in loaded.errors[:5]]


def _servers() -> list[dict[str, str]]:
    from ..sources.discover import find_servers

    try:
        found = find_servers()
    except OSError as error:
        return [_bad(f"processes cannot be listed: {error}", "mount /proc, or name the log: sglang-watchdog run LOG")]
    if not found:
        return [_bad("no SGLang server runs here (or its processes are hidden: hidepid, another container)",
                     "start one, run as its user, or name its log: sglang-watchdog run LOG")]  # fmt: skip
    rows = []
    for one in found:
        # Standard output and error mostly go to one place.
        for output in {(output.kind, output.where): output for output in reversed(one.outputs)}.values():
            text = f"{one.name} (pid {one.launcher.pid}, port {one.launcher.port}): {output.kind} {output.where or ''} {output.reason}"
            rows.append(_good(text) if output.where else _bad(text, "redirect its output to a file: … > server.log 2>&1"))
    places = [{"name": one.name, "logs": list(one.logs), "url": f"http://127.0.0.1:{one.launcher.port}"} for one in found]
    rows.append(_good("configuration for what was found:\n" + _yaml({"servers": places})))
    return rows


def _yaml(value: dict[str, Any]) -> str:
    import yaml

    return "".join(f"      {line}\n" for line in yaml.safe_dump(value, sort_keys=False).splitlines())


def _logs() -> list[dict[str, str]]:
    rows = []
    journalctl = shutil.which("journalctl")
    if journalctl is None:
        rows.append(_bad("no journalctl", "journal: sources need systemd's package; files work without"))
    elif not any(os.access(path, os.R_OK) for path in ("/var/log/journal", "/run/log/journal")):
        rows.append(_bad("the journal cannot be read", "usermod -aG systemd-journal USER, or SupplementaryGroups=systemd-journal in the unit"))
    else:
        rows.append(_good("the journal can be read"))
    kmsg = os.access("/dev/kmsg", os.R_OK)
    rows.append(_good("/dev/kmsg can be read (Xid, OOM killer)") if kmsg else
                _bad("/dev/kmsg cannot be read: Xid lines come by NVML events only", "root, CAP_SYSLOG, or journal:… of the kernel"))  # fmt: skip
    docker = Path("/var/lib/docker/containers")
    if docker.exists() and not os.access(docker, os.R_OK):
        rows.append(_bad("container logs belong to root", "run as root, or use `docker logs -f NAME | sglang-watchdog run -`"))
    return rows


async def _gpus() -> list[dict[str, str]]:
    from ..sources.nvml_sampler import look_once
    from ..sources.nvml_status import advice

    status = await look_once()
    if not status.is_up:
        reason = status.reason if status.reason.startswith(status.state) else f"{status.state}: {status.reason}"
        return [_bad(f"NVML: {reason}", advice(status.state) or "findings from the log alone are not affected")]
    rows = [_good(f"NVML {status.nvml}, driver {status.driver}, CUDA {status.cuda}")]
    for gpu in status.gpus:
        name = f"GPU {gpu.gpu}: {gpu.name or 'without a name'}"
        rows.append(_good(name) if gpu.error is None else _bad(f"{name}: {gpu.error}", "findings of this GPU are unknown until it answers"))
    return rows


def _port(port: int) -> list[dict[str, str]]:
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return [_bad(f"port {port} is taken, perhaps by a running watchdog: sglang-watchdog sources", "--listen 127.0.0.1:OTHER")]
    return [_good(f"port {port} is free")]


def _good(text: str) -> dict[str, str]:
    return {"state": "ok", "what": text, "do": ""}


def _bad(text: str, do: str) -> dict[str, str]:
    return {"state": "not", "what": text, "do": do}


def _print(report: dict[str, list[dict[str, str]]]) -> None:
    for part, rows in report.items():
        print(part)
        for row in rows:
            print(f"  {'✓' if row['state'] == 'ok' else '✗'} {row['what']}")
            if row["do"]:
                print(f"      → {row['do']}")
