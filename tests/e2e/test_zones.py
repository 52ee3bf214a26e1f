"""Where a daemon's machine and its server live in different zones, findings carry the right time, and the sources say why."""

import time
from datetime import datetime
from pathlib import Path

from .daemon import RunningDaemon
from .firing import dump, lines_that_fire, stamped


def test_a_server_in_another_zone_is_dated_right_and_shown(tmp_path: Path):
    """A container that writes UTC, on a machine in Shanghai; the log is empty when the daemon starts."""
    log = tmp_path / "server.log"
    log.touch()
    signature, line = next(iter(lines_that_fire(("warning",)).items()))
    with RunningDaemon(str(log), "--telemetry", "none", "--state-dir", "none", environment={"TZ": "Asia/Shanghai"}) as daemon:
        assert daemon.all("sources")[0]["timezone"] == "+08:00 (machine)"
        with log.open("a") as out:
            out.write(dump(1) + stamped(line))
        (finding,) = daemon.wait_for(lambda: daemon.all("findings", f"&signature={signature}"), 60)
        assert abs(datetime.fromisoformat(finding["first_seen"]).timestamp() - time.time()) < 120
        daemon.wait_for(lambda: daemon.all("sources")[0]["timezone"] == "UTC (file time)", 60)
