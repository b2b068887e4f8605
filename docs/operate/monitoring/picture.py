#!/usr/bin/python3
"""Draws the dashboard as it was over the last minutes: `picture.py PROMETHEUS_URL MINUTES OUT.png`.

It asks Prometheus for the queries of `dashboard.json` and needs matplotlib. The picture in the documentation is made by it.
"""

import datetime
import json
import pathlib
import sys
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates
import matplotlib.pyplot as plot

# The grid of Grafana has 24 columns.
COLUMNS, DPI, CELL_INCHES = 24, 80, (0.7, 0.42)
STEP_SECONDS = 2


def ask(base, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{base}/api/v1/{path}?{query}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def label(target, series):
    text = target.get("legendFormat") or ""
    for name, value in series["metric"].items():
        text = text.replace("{{%s}}" % name, value)
    return text


def main(base, minutes, out):
    folder = pathlib.Path(__file__).parent
    dashboard = json.loads((folder / "dashboard.json").read_text())
    end = datetime.datetime.now().timestamp()
    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    plot.style.use("dark_background")
    plot.rcParams.update({"font.size": 7, "axes.edgecolor": "#444", "axes.titlesize": 8})
    figure = plot.figure(figsize=(COLUMNS * CELL_INCHES[0], rows * CELL_INCHES[1]), dpi=DPI, facecolor="#111217")
    for panel in panels:
        place = panel["gridPos"]
        left, width = place["x"] / COLUMNS, place["w"] / COLUMNS
        bottom, height = 1 - (place["y"] + place["h"]) / rows, place["h"] / rows
        inner = [left + 0.028, bottom + 0.022, width - 0.036, height - 0.042]
        axes = figure.add_axes(inner, facecolor="#181b1f")
        axes.set_title(panel["title"], loc="left", color="#ccccdc")
        found = []
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "15s")
            range_of = {"start": end - minutes * 60, "end": end, "step": STEP_SECONDS}
            found += [(label(target, series), series["values"]) for series in ask(base, "query_range", query=query, **range_of)]
        if panel["type"] == "stat":
            axes.set_xticks([]), axes.set_yticks([])
            value = found[0][1][-1][1] if found else "no data"
            axes.text(0.5, 0.45, f"{float(value):g}" if found else value, ha="center", va="center", fontsize=20, color="#73bf69")
            continue
        for name, values in found:
            times = [datetime.datetime.fromtimestamp(at) for at, _ in values]
            axes.plot(times, [float(value) for _, value in values], linewidth=1, label=name)
        axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
        axes.xaxis.set_major_locator(matplotlib.dates.AutoDateLocator(maxticks=5))
        axes.grid(color="#2c3235", linewidth=0.5)
        unit = panel["fieldConfig"]["defaults"].get("unit", "")
        axes.set_ylabel({"ops": "per s", "reqps": "per s", "s": "s", "bytes": "bytes"}.get(unit, ""))
        if found:
            axes.set_ylim(bottom=0)
            axes.legend(loc="upper left", fontsize=6, frameon=False)
    figure.savefig(out, facecolor=figure.get_facecolor())


main(sys.argv[1].rstrip("/"), float(sys.argv[2]), sys.argv[3])
