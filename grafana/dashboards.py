"""What is on the dashboards."""

from typing import Final

from parts import GPU, PREFIX, SERVER, TARGET, Dashboard, Json, Panel, Query, annotation, of_server, rate

Steps = tuple[tuple[float | None, str], ...]

STATUS_PAGE: Final = ("Status page", "http://${__data.fields.instance}/")
BAD: Final[Steps] = ((None, "green"), (1, "orange"))
UP: Final[Steps] = ((None, "red"), (1, "green"))
ON: Final = ({"type": "value", "options": {"1": {"text": "yes", "color": "green", "index": 0}}},)
HELD: Final = (
    {"type": "value", "options": {"0": {"text": "no", "color": "transparent", "index": 0}, "1": {"text": "yes", "color": "orange", "index": 1}}},
)
UP_DOWN: Final = ({"type": "value", "options": {"0": {"text": "down", "color": "red", "index": 0}, "1": {"text": "up", "color": "green", "index": 1}}},)

EVENTS: Final = (
    annotation("Runs", f"changes({PREFIX}server_start_timestamp_seconds{{{SERVER}}}[1m]) > 0", "purple", "{{server}}: a run began", "{{instance}}"),
    annotation(
        "Findings", f'increase({PREFIX}finding_transitions_total{{{SERVER},to="firing"}}[1m]) > 0', "orange", "{{server}}: {{topic}}", "{{instance}}"
    ),
)


BEGAN: Final = f'{SERVER},to="firing"'


def m(metric: str, selector: str) -> str:
    return f"{PREFIX}{metric}{{{selector}}}"


def series(title: str, about: str, unit: str, *queries: Query, max: float | None = None, width: int = 12, draws: str = "line") -> Panel:
    return Panel("timeseries", title, about, queries, unit, width=width, max=max, draws=draws)


def stat(
    title: str,
    about: str,
    unit: str,
    expr: str,
    legend: str,
    *,
    width: int,
    height: int = 5,
    steps: Steps = ((None, "green"),),
    mappings: tuple[Json, ...] = (),
) -> Panel:
    return Panel("stat", title, about, (Query(expr, legend, True),), unit, width=width, height=height, steps=steps, mappings=mappings)


def table(
    title: str,
    about: str,
    expr: str,
    *,
    width: int,
    height: int = 7,
    hidden: tuple[str, ...] = (),
    links: tuple[tuple[str, str], ...] = (),
    mappings: tuple[Json, ...] = (),
) -> Panel:
    return Panel("table", title, about, (Query(expr, "", True),), "none", width=width, height=height, hidden=hidden, links=links, mappings=mappings)


FINDINGS: Final = Panel(
    "state-timeline",
    "Findings",
    "A bar while a finding of this topic is firing; ask `sglang-watchdog findings` for its evidence.",
    (Query(f"max by (instance, server, severity, topic) ({m('finding_active', SERVER)}) == 1", "{{server}} {{severity}} {{topic}}"),),
    "none",
    width=24,
    height=8,
    mappings=({"type": "value", "options": {"1": {"text": "firing", "color": "orange", "index": 0}}},),
)

PHASE: Final = Panel(
    "state-timeline",
    "Phase",
    "Where each server is: starting, loading, capturing, ready, serving, idle, stopping, stopped, crashed.",
    (Query(f"max by (instance, server, phase) ({m('server_phase', SERVER)}) == 1", "{{server}} {{phase}}"),),
    "none",
    width=24,
    height=6,
    mappings=ON,
)

SERVERS: Final = Dashboard(
    "sglang-watchdog-server",
    "SGLang Watchdog / Server",
    "One server: phase, findings, restarts, load, and what its GPUs make of it.",
    (
        (
            "Now",
            (
                stat(
                    "Firing findings",
                    "By the default severity of their topics.",
                    "short",
                    f"sum by (severity) ({m('finding_active', SERVER)})",
                    "{{severity}}",
                    width=8,
                    steps=BAD,
                ),
                stat("Time to ready", "Of the current run, from its first line.", "s", m("server_ready_seconds", SERVER), "{{server}}", width=4),
                stat(
                    "Run began",
                    "The current run's first line.",
                    "dateTimeFromNow",
                    f"{m('server_start_timestamp_seconds', SERVER)} * 1000",
                    "{{server}}",
                    width=4,
                ),
                table(
                    "Current run",
                    "Model and release as the log states or implies them.",
                    m("server_info", SERVER),
                    width=8,
                    height=5,
                    hidden=("Value",),
                    links=(STATUS_PAGE,),
                ),
            ),
        ),
        (
            "Events",
            (
                PHASE,
                FINDINGS,
                series(
                    "Findings that began",
                    "Transitions to firing.",
                    "short",
                    Query(
                        f"sum by (instance, server, topic) (increase({m('finding_transitions_total', BEGAN)}[$__rate_interval])) > 0",
                        "{{server}} {{topic}}",
                    ),
                    draws="bars",
                ),
                series(
                    "What could be judged",
                    "Signatures by verdict on the current run; unknown ones say why in `sglang-watchdog coverage`.",
                    "short",
                    Query(f"sum by (instance, server, verdict) ({m('signature_verdicts', SERVER)})", "{{server}} {{verdict}}"),
                ),
            ),
        ),
        (
            "Load, from the server's own batch lines",
            (
                series(
                    "Throughput",
                    "Output tokens a second of the newest Decode lines, summed over ranks.",
                    "short",
                    Query(f"sum by (instance, server) ({m('server_decode_tokens_per_second', SERVER)})"),
                ),
                series(
                    "Requests",
                    "Running and waiting, summed over ranks.",
                    "short",
                    Query(f"sum by (instance, server) ({m('server_running_requests', SERVER)})", "{{server}} running"),
                    Query(f"sum by (instance, server) ({m('server_queue_requests', SERVER)})", "{{server}} waiting"),
                ),
                series(
                    "KV slots in use", "The fullest rank.", "percentunit", Query(f"max by (instance, server) ({m('server_kv_used_ratio', SERVER)})"), max=1
                ),
                series(
                    "Energy for a token",
                    "GPU power over output tokens a second.",
                    "joule",
                    Query(f"server:sglang_watchdog_joules_per_token:ratio{{{SERVER}}}"),
                ),
            ),
        ),
        (
            "What the GPUs make of it",
            (
                series(
                    "Power over limit",
                    "Mean of the server's GPUs. Far below 1 under a full batch is a finding.",
                    "percentunit",
                    Query(of_server("gpu_power_ratio", "avg")),
                    max=1,
                ),
                series(
                    "SM activity",
                    "Mean of the server's GPUs: SMs with a warp resident; utilisation: any kernel resident.",
                    "percentunit",
                    Query(of_server("gpu_sm_active_ratio", "avg"), "{{server}} SM active"),
                    Query(of_server("gpu_sm_utilization_ratio", "avg"), "{{server}} utilisation"),
                    max=1,
                ),
                series(
                    "PCIe",
                    "Sum over the server's GPUs.",
                    "Bps",
                    Query(of_server("gpu_pcie_receive_bytes_per_second", "sum"), "{{server}} to the GPUs"),
                    Query(of_server("gpu_pcie_transmit_bytes_per_second", "sum"), "{{server}} from the GPUs"),
                ),
                series("Power", "Sum over the server's GPUs.", "watt", Query(of_server("gpu_power_watts", "sum"))),
            ),
        ),
    ),
    annotations=EVENTS,
)


def gpu(title: str, about: str, unit: str, *metrics: tuple[str, str], max: float | None = None) -> Panel:
    queries = (Query(m(name, GPU), "{{instance}} GPU {{gpu}}" + (f" {what}" if what else "")) for name, what in metrics)
    return series(title, about, unit, *queries, max=max, width=8)


GPUS: Final = Dashboard(
    "sglang-watchdog-gpu",
    "SGLang Watchdog / GPU",
    "Each GPU beside its peers: power, activity, link, clocks, what holds it back.",
    (
        (
            "Which",
            (
                table("GPUs", "Index, product, UUID.", m("gpu_info", GPU), width=12, height=6, hidden=("Value",), links=(STATUS_PAGE,)),
                table(
                    "Placement",
                    "Which rank of which server runs on which GPU, as the log or the process table says.",
                    m("gpu_server", GPU),
                    width=12,
                    height=6,
                    hidden=("Value",),
                ),
            ),
        ),
        (
            "Power",
            (
                gpu("Power", "Drawn, and the limit in force.", "watt", ("gpu_power_watts", ""), ("gpu_power_limit_watts", "limit")),
                gpu("Power over limit", "1 is where a busy GPU belongs.", "percentunit", ("gpu_power_ratio", ""), max=1),
                series(
                    "Power from energy",
                    "The driver's energy counter, per second: free of sampling.",
                    "watt",
                    Query(rate("gpu_energy_joules_total", GPU), "{{instance}} GPU {{gpu}}"),
                    width=8,
                ),
            ),
        ),
        (
            "Activity",
            (
                gpu(
                    "Utilisation",
                    "Share of time with any kernel resident; says nothing of how much it does.",
                    "percentunit",
                    ("gpu_sm_utilization_ratio", ""),
                    max=1,
                ),
                gpu("SM active", "Share of SM cycles with a warp resident.", "percentunit", ("gpu_sm_active_ratio", ""), max=1),
                gpu(
                    "Tensor and memory",
                    "Cycles in which the tensor pipes, the memory interface were busy.",
                    "percentunit",
                    ("gpu_tensor_active_ratio", "tensor"),
                    ("gpu_dram_active_ratio", "memory"),
                    max=1,
                ),
            ),
        ),
        (
            "PCIe",
            (
                gpu(
                    "PCIe traffic",
                    "To and from the GPU.",
                    "Bps",
                    ("gpu_pcie_receive_bytes_per_second", "in"),
                    ("gpu_pcie_transmit_bytes_per_second", "out"),
                ),
                gpu("Link generation", "Falls when idle on many cards; low under load is a finding.", "none", ("gpu_pcie_link_generation", "")),
                gpu("Link width", "Lanes in use.", "none", ("gpu_pcie_link_width", "")),
            ),
        ),
        (
            "Condition",
            (
                gpu("Temperature", "Of the core.", "celsius", ("gpu_temperature_celsius", "")),
                gpu("SM clock", "Now.", "hertz", ("gpu_sm_clock_hertz", "")),
                gpu("Memory in use", "Device memory.", "bytes", ("gpu_memory_used_bytes", "")),
                Panel(
                    "state-timeline",
                    "What holds clocks back",
                    "Reasons the driver names; GpuIdle is normal without load.",
                    (Query(f"max by (instance, gpu, reason) ({m('gpu_throttle_active', GPU)}) == 1", "{{instance}} GPU {{gpu}} {{reason}}"),),
                    "none",
                    width=24,
                    height=8,
                    mappings=HELD,
                ),
            ),
        ),
    ),
    variables=("gpu",),
)

FLEET: Final = Dashboard(
    "sglang-watchdog-fleet",
    "SGLang Watchdog / Fleet",
    "All servers of all machines: who serves, who is in trouble, what it costs.",
    (
        (
            "Now",
            (
                stat("Watchdogs that answer", "Targets of the job that Prometheus can scrape.", "short", f"sum(up{{{TARGET}}})", "", width=4),
                stat(
                    "Servers by phase",
                    "How many servers are in which phase.",
                    "short",
                    f"sum by (phase) ({m('server_phase', SERVER)}) > 0",
                    "{{phase}}",
                    width=10,
                ),
                stat(
                    "Firing findings",
                    "By the default severity of their topics.",
                    "short",
                    f"sum by (severity) ({m('finding_active', SERVER)})",
                    "{{severity}}",
                    width=10,
                    steps=BAD,
                ),
                table(
                    "Alerts",
                    "What Prometheus fires for this fleet.",
                    f'ALERTS{{alertname=~"SGLangWatchdog.+",{TARGET}}}',
                    width=24,
                    height=8,
                    hidden=("Value",),
                    links=(("Runbook", "${runbooks}/${__data.fields.alertname}.md"), STATUS_PAGE),
                ),
            ),
        ),
        (
            "Servers",
            (
                table(
                    "Servers",
                    "Current runs.",
                    m("server_info", SERVER),
                    width=12,
                    height=8,
                    hidden=("Value",),
                    links=(("Server", "/d/sglang-watchdog-server?var-instance=${__data.fields.instance}&var-server=${__data.fields.server}"), STATUS_PAGE),
                ),
                table(
                    "Firing findings",
                    "Topic by server.",
                    f"{m('finding_active', SERVER)} == 1",
                    width=12,
                    height=8,
                    hidden=("Value",),
                    links=(STATUS_PAGE,),
                ),
                series(
                    "Findings",
                    "Firing at the same time, by severity.",
                    "short",
                    Query(f"sum by (severity) (server_severity:sglang_watchdog_finding_active:sum{{{SERVER}}})", "{{severity}}"),
                    draws="bars",
                ),
                series(
                    "Throughput",
                    "Output tokens a second, by server.",
                    "short",
                    Query(f"server:sglang_watchdog_server_decode_tokens_per_second:sum{{{SERVER}}}"),
                    draws="bars",
                ),
                series("Waiting requests", "By server.", "short", Query(f"server:sglang_watchdog_server_queue_requests:sum{{{SERVER}}}")),
                series(
                    "KV slots in use",
                    "The fullest rank of each server.",
                    "percentunit",
                    Query(f"server:sglang_watchdog_server_kv_used_ratio:max{{{SERVER}}}"),
                    max=1,
                ),
            ),
        ),
        (
            "Power",
            (
                series(
                    "Power", "Of all GPUs, by machine.", "watt", Query(f"sum by (instance) ({m('gpu_power_watts', TARGET)})", "{{instance}}"), draws="bars"
                ),
                series(
                    "Power over limit",
                    "Mean of each server's GPUs.",
                    "percentunit",
                    Query(f"server:sglang_watchdog_gpu_power_ratio:avg{{{SERVER}}}"),
                    max=1,
                ),
                series(
                    "SM activity",
                    "Mean of each server's GPUs.",
                    "percentunit",
                    Query(f"server:sglang_watchdog_gpu_sm_active_ratio:avg{{{SERVER}}}"),
                    max=1,
                ),
                series(
                    "Energy for a token",
                    "GPU power over output tokens a second, by server.",
                    "joule",
                    Query(f"server:sglang_watchdog_joules_per_token:ratio{{{SERVER}}}"),
                ),
            ),
        ),
    ),
    annotations=EVENTS,
)

SOURCE: Final = f'{TARGET},source=~"$source"'


def own(title: str, about: str, metric: str) -> Panel:
    return stat(title, about, "none", m(metric, TARGET), "{{instance}}", width=4, height=4, mappings=UP_DOWN, steps=UP)


HEALTH: Final = Dashboard(
    "sglang-watchdog-health",
    "SGLang Watchdog / Health",
    "Is the watchdog itself well: sources, engine, ledger, notifications.",
    (
        (
            "Now",
            (
                stat("Answers", "Prometheus can scrape it.", "none", f"up{{{TARGET}}}", "{{instance}}", width=4, height=4, mappings=UP_DOWN, steps=UP),
                own("GPUs readable", "NVML, or a recording in its place.", "nvml_up"),
                own("Ledger on disk", "Findings survive a restart.", "ledger_durable"),
                own("Last reload accepted", "Configuration and signatures.", "config_last_reload_successful"),
                stat(
                    "Running since",
                    "Start of the daemon.",
                    "dateTimeFromNow",
                    f"{m('start_timestamp_seconds', TARGET)} * 1000",
                    "{{instance}}",
                    width=4,
                    height=4,
                ),
                stat(
                    "Faults of our own",
                    "Since the start; report them.",
                    "short",
                    m("engine_errors_total", TARGET),
                    "{{instance}}",
                    width=4,
                    height=4,
                    steps=BAD,
                ),
                table(
                    "Release", "Daemon, signature library, Python.", m("build_info", TARGET), width=24, height=5, hidden=("Value",), links=(STATUS_PAGE,)
                ),
            ),
        ),
        (
            "Sources",
            (
                Panel(
                    "state-timeline",
                    "Readable",
                    "Each source: up, or down.",
                    (Query(m("source_up", SOURCE), "{{instance}} {{source}}"),),
                    "none",
                    width=24,
                    height=6,
                    mappings=UP_DOWN,
                ),
                series("Read", "Bytes a second.", "Bps", Query(rate("source_read_bytes_total", SOURCE), "{{instance}} {{source}}")),
                series("Lines", "Lines a second.", "short", Query(rate("source_lines_total", SOURCE), "{{instance}} {{source}}")),
                series("Behind", "Written and not yet read.", "bytes", Query(m("source_lag_bytes", SOURCE), "{{instance}} {{source}}")),
                series(
                    "Gaps",
                    "Stretches that are known to be lost.",
                    "short",
                    Query(f"increase({m('source_gaps_total', SOURCE)}[$__rate_interval])", "{{instance}} {{source}}"),
                    draws="bars",
                ),
                series(
                    "Age of the newest line",
                    "By its own stamp. A quiet server is no fault.",
                    "s",
                    Query(f"time() - {m('source_last_line_timestamp_seconds', SOURCE)}", "{{instance}} {{source}}"),
                ),
            ),
        ),
        (
            "Inside",
            (
                series(
                    "Faults of our own",
                    "An observation or a signature that could not be handled.",
                    "short",
                    Query(f"increase({m('engine_errors_total', TARGET)}[$__rate_interval])", "{{instance}}"),
                    draws="bars",
                ),
                series("Waiting for the ledger", "Writes.", "short", Query(m("ledger_backlog", TARGET), "{{instance}}")),
                series(
                    "Notifications",
                    "Delivered and failed attempts a second. Without `notify:` there is nothing here.",
                    "ops",
                    Query(rate("notifications_total", TARGET), "{{instance}} {{channel}} delivered"),
                    Query(rate("notification_failures_total", TARGET), "{{instance}} {{channel}} failed"),
                ),
                series(
                    "Notifications waiting",
                    "And those given up.",
                    "short",
                    Query(m("notification_queue", TARGET), "{{instance}} {{channel}} waiting"),
                    Query(m("notification_dead_letters", TARGET), "{{instance}} {{channel}} given up"),
                ),
                series("Scrape", "How long a scrape takes.", "s", Query(f"scrape_duration_seconds{{{TARGET}}}", "{{instance}}")),
                series("Series", "Samples in a scrape.", "short", Query(f"scrape_samples_scraped{{{TARGET}}}", "{{instance}}")),
            ),
        ),
    ),
    variables=("source",),
)

ALL: Final = (SERVERS, GPUS, FLEET, HEALTH)
