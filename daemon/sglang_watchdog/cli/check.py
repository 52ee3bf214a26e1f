"""`sglang-watchdog check`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .terminal import ProgressBar, colour

if TYPE_CHECKING:
    from ..model.flags import Launch

FORMATS = ("text", "json", "markdown", "junit", "sarif")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog check",
        description="Judge logs of an SGLang server: plain, rotated, packed (gzip, bzip2, xz), docker json-file, CRI, journald JSON. Several logs are "
        "one server in time order; - reads standard input.",
        epilog="Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 usage, 3 no SGLang record, or a log that cannot be read "
        "to its end, "
        "4 failure, 78 a broken signature.",
    )
    p.add_argument("logs", nargs="+", metavar="LOG")
    p.add_argument("--telemetry", type=Path, metavar="FILE", help="recording of GPU samples (JSON lines, plain or .gz)")
    p.add_argument(
        "--model-config", type=Path, metavar="PATH", help="the model's config.json or its folder: shapes for the memory roofline"
    )
    p.add_argument("--signatures", type=Path, action="append", default=[], metavar="DIR", help="more signatures, after the built-in ones")
    p.add_argument("--format", choices=FORMATS, default="text")
    p.add_argument("--fail-on", choices=("critical", "warning", "info", "never"), default="critical")
    p.add_argument("--timezone", metavar="TZ", help="zone of the log's stamps: UTC, +08:00, Asia/Shanghai")
    p.add_argument(
        "--command",
        metavar="WORDS",
        help="the launch command of the log's last run: what was asked is held against what it runs with (the daemon reads it from the process)",
    )
    p.add_argument("--until", metavar="TIME", help="nothing more was said until then (RFC 3339, or mtime: the file's own time)")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    from ..offline.check import Request, UsageError, run_check
    from ..triage.command import NotACommand
    from ..triage.findings import flag_judge
    from .main import version

    total = sum(Path(log).stat().st_size for log in options.logs if log != "-" and Path(log).is_file())
    bar = ProgressBar(total)
    try:
        report = run_check(
            Request(
                logs=options.logs,
                telemetry=options.telemetry,
                signatures=tuple(options.signatures),
                timezone=options.timezone,
                until=options.until,
                launch=_launch(options.command),
                fail_on=options.fail_on,
                model_config=options.model_config,
            ),
            version(),
            on_bytes=bar.add,
            flags=flag_judge,
        )
    except (UsageError, NotACommand) as error:
        print(f"sglang-watchdog check: {error}", file=sys.stderr)
        return 2
    finally:
        bar.close()
    for message in report.messages:
        print(message, file=sys.stderr)
    sys.stdout.write(_rendered(report, options))
    if report.exit_code == 3 and options.format == "text" and not any(source.sglang_lines for source in report.sources):
        print("Nothing here is an SGLang log. `sglang-watchdog doctor` finds the logs of running servers.", file=sys.stderr)
    return report.exit_code


def _launch(text: str | None) -> "Launch | None":
    """The launch command as the process source tells it.

    Raises:
        NotACommand: the text holds none.
    """
    if text is None:
        return None
    from ..model.flags import Launch
    from ..parse.redact import redact_words
    from ..triage.command import read_command

    return Launch(words=redact_words(read_command(text).arguments), source="--command")


def _rendered(report, options: argparse.Namespace) -> str:  # type: ignore[no-untyped-def]
    match options.format:
        case "json":
            from ..sinks.encode import dumps

            return dumps(report.document(), indent=1) + "\n"
        case "markdown":
            from ..offline.report_markdown import render as markdown

            return markdown(report)
        case "junit":
            from ..offline.report_junit import render as junit

            return junit(report, options.fail_on)
        case "sarif":
            from ..offline.report_sarif import render as sarif

            return sarif(report)
    from ..offline.report_text import render as text

    return text(report, colour=colour(sys.stdout))
