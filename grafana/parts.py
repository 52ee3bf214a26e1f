"""The parts a dashboard is built of, as Grafana's Classic model writes them: panels, queries, variables, annotations, links."""

from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

PREFIX: Final = "sglang_watchdog_"
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TARGET: Final = 'job=~"$job",instance=~"$instance"'
SERVER: Final = f'{TARGET},server=~"$server"'
GPU: Final = f'{TARGET},gpu=~"$gpu"'
SEVERITY_COLOURS: Final = {"critical": "red", "warning": "orange", "info": "blue"}
RUNBOOKS: Final = "file:///opt/sglang-watchdog/share/runbooks"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; `legend` in Grafana's {{label}} notation. `is_instant` for stats and tables."""

    expr: str
    legend: str = "{{instance}} {{server}}"
    is_instant: bool = False

    def target(self, ref: str, *, as_table: bool) -> Json:
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "instant": self.is_instant,
            "range": not self.is_instant,
            "legendFormat": self.legend,
            "refId": ref,
            "format": "table" if as_table else "time_series",
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of `width` (of 24) by `height` grid units; `unit` as Grafana names units."""

    type: str
    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str
    width: int = 12
    height: int = 7
    max: float | None = None
    mappings: tuple[Json, ...] = ()
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),)
    hidden: tuple[str, ...] = ()  # columns of a table
    links: tuple[tuple[str, str], ...] = ()
    draws: str = "line"

    def json(self, id: int, x: int, y: int) -> Json:
        defaults: Json = {
            "unit": self.unit,
            "mappings": list(self.mappings),
            "custom": self._custom(),
            "min": 0,
            "color": {"mode": "palette-classic" if self.type == "timeseries" else "thresholds"},
            "thresholds": {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in self.steps]},
            "links": [{"title": title, "url": url, "targetBlank": True} for title, url in self.links],
        }
        if self.max is not None:
            defaults["max"] = self.max
        if self.type == "table":
            del defaults["min"]
        panel: Json = {
            "id": id,
            "type": self.type,
            "title": self.title,
            "description": self.about,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [query.target(chr(ord("A") + number), as_table=self.type == "table") for number, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": self._options(),
        }
        if self.type == "table":
            hidden = dict.fromkeys(("Time", "__name__", "job", *self.hidden), True)
            panel["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden, "indexByName": {}, "renameByName": {}}}]
        return panel

    def _custom(self) -> Json:
        if self.type == "timeseries":
            return {
                "drawStyle": self.draws,
                "lineWidth": 1,
                "fillOpacity": 60 if self.draws == "bars" else 8,
                "showPoints": "never",
                "spanNulls": False,
                "stacking": {"mode": "normal" if self.draws == "bars" else "none", "group": "A"},
            }
        if self.type == "state-timeline":
            return {"lineWidth": 0, "fillOpacity": 75, "spanNulls": False}
        if self.type == "table":
            return {"align": "left", "filterable": True, "cellOptions": {"type": "auto"}}
        return {}

    def _options(self) -> Json:
        if self.type == "timeseries":
            return {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        if self.type == "state-timeline":
            return {
                "mergeValues": True,
                "showValue": "never",
                "alignValue": "left",
                "rowHeight": 0.85,
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
                "tooltip": {"mode": "single", "sort": "none"},
            }
        if self.type == "stat":
            return {
                "colorMode": "value",
                "graphMode": "none",
                "justifyMode": "auto",
                "textMode": "auto",
                "orientation": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        return {"showHeader": True, "cellHeight": "sm"}


def rate(metric: str, selector: str) -> str:
    """Per second, over the interval that fits the scrape interval and the zoom."""
    return f"rate({PREFIX}{metric}{{{selector}}}[$__rate_interval])"


def of_server(metric: str, how: str, *labels: str) -> str:
    """A GPU's metric for the servers that run on it."""
    by = ", ".join(("instance", "server", *labels))
    return (
        f"{how} by ({by}) (max by (job, instance, gpu, server) ({PREFIX}gpu_server{{{SERVER}}})"
        f" * on (job, instance, gpu) group_left () {PREFIX}{metric}{{{TARGET}}})"
    )


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    about: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[str, ...] = ("server",)  # besides datasource, job and instance
    annotations: tuple[Json, ...] = field(default=())

    def json(self) -> Json:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": ["sglang-watchdog"],
            "schemaVersion": 39,
            "version": 1,
            "id": None,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "timezone": "browser",
            "time": {"from": "now-3h", "to": "now"},
            "timepicker": {},
            "fiscalYearStartMonth": 0,
            "weekStart": "",
            "liveNow": False,
            "links": [
                {
                    "type": "dashboards",
                    "title": "SGLang Watchdog",
                    "tags": ["sglang-watchdog"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                    "targetBlank": False,
                    "icon": "external link",
                    "tooltip": "",
                    "url": "",
                },
                {
                    "type": "link",
                    "title": "Status page",
                    "url": "http://${instance}/",
                    "tags": [],
                    "asDropdown": False,
                    "includeVars": False,
                    "keepTime": False,
                    "targetBlank": True,
                    "icon": "external link",
                    "tooltip": "The watchdog's own page; choose one instance first",
                },
                {
                    "type": "link",
                    "title": "Runbooks",
                    "url": "${runbooks}/README.md",
                    "tags": [],
                    "asDropdown": False,
                    "includeVars": False,
                    "keepTime": False,
                    "targetBlank": True,
                    "icon": "doc",
                    "tooltip": "One page for each alert",
                },
            ],
            "annotations": {
                "list": [
                    {
                        "name": "Annotations & Alerts",
                        "builtIn": 1,
                        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
                        "enable": True,
                        "hide": True,
                        "iconColor": "rgba(0, 211, 255, 1)",
                        "type": "dashboard",
                    },
                    *self.annotations,
                ]
            },
            "templating": {"list": [*_common(), *(VARIABLES[name] for name in self.variables), _runbooks()]},
            "panels": self._panels(),
        }

    def _panels(self) -> list[Json]:
        panels: list[Json] = []
        y = 0
        for title, row in self.rows:
            panels.append(
                {
                    "id": len(panels) + 1,
                    "type": "row",
                    "title": title,
                    "collapsed": False,
                    "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                    "panels": [],
                }
            )
            y += 1
            x = highest = 0
            for panel in row:
                if x + panel.width > 24:
                    x, y, highest = 0, y + highest, 0
                panels.append(panel.json(len(panels) + 1, x, y))
                x, highest = x + panel.width, max(highest, panel.height)
            y += highest
        return panels


def annotation(name: str, expr: str, colour: str, title: str, text: str) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "15s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "server",
        "useValueForTime": False,
    }


def _variable(name: str, label: str, metric: str, selector: str) -> Json:
    query = f"label_values({metric}{{{selector}}}, {name})" if selector else f"label_values({metric}, {name})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": f"{name}-values", "qryType": 1},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "hide": 0,
        "options": [],
        "regex": "",
        "skipUrlSync": False,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _common() -> list[Json]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "options": [],
        "skipUrlSync": False,
        "current": {},
    }
    return [source, _variable("job", "Job", f"{PREFIX}build_info", ""), _variable("instance", "Instance", f"{PREFIX}build_info", 'job=~"$job"')]


def _runbooks() -> Json:
    return {
        "name": "runbooks",
        "label": "Runbooks at",
        "type": "textbox",
        "query": RUNBOOKS,
        "hide": 2,
        "skipUrlSync": False,
        "current": {"text": RUNBOOKS, "value": RUNBOOKS},
        "options": [{"selected": True, "text": RUNBOOKS, "value": RUNBOOKS}],
    }


VARIABLES: Final[dict[str, Json]] = {
    "server": _variable("server", "Server", f"{PREFIX}server_phase", TARGET),
    "gpu": _variable("gpu", "GPU", f"{PREFIX}gpu_power_watts", TARGET),
    "source": _variable("source", "Source", f"{PREFIX}source_up", TARGET),
}
