"""What Debian's Prometheus holds after a minute at the real daemon: every metric that dashboards and alerts may rely on."""

import subprocess

from sinks.test_metrics import CONTRACT

from .site import Site, get, wait_for
from .tools import tool

PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds", "process_max_fds"}


def now(site: Site, expression: str) -> list[float]:
    return [float(row["value"][1]) for row in get(f"{site.prometheus}/api/v1/query", query=expression)["data"]["result"]]


def test_every_metric_of_the_contract_is_there(replayed: Site) -> None:
    names = set(get(f"{replayed.prometheus}/api/v1/label/__name__/values")["data"])

    assert {f"sglang_watchdog_{name}" for name in CONTRACT} - names == set()
    assert PROCESS - names == set()


def test_a_minute_of_scrapes_and_none_failed(replayed: Site) -> None:
    scrapes = 'up{job="sglang-watchdog"}'
    wait_for(lambda: (now(replayed, f"count_over_time({scrapes}[5m])") or [0.0])[0] >= 60, 70, "no minute of scrapes")

    assert now(replayed, f"min_over_time({scrapes}[5m])") == [1.0]
    assert now(replayed, 'max_over_time(scrape_samples_scraped{job="sglang-watchdog"}[5m])')[0] < 1_200, "one server, one node"


def test_promtool_has_nothing_to_say_against_the_live_metrics(replayed: Site) -> None:
    told = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=replayed.daemon.text("/metrics"), capture_output=True, text=True, timeout=30, check=False
    )

    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
