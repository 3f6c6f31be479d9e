"""Checks of dsaioctl metrics.

    ctl_metrics.py text METRICS STATUS.json       the text is OpenMetrics, and has the numbers of the status
    ctl_metrics.py dashboard METRICS GRAFANA.json each metric that the dashboard asks for is there
    ctl_metrics.py fetch URL STATUS TEXT [PATH] [--body | --put | --headers]
                                                  a request has that answer, and its body that text

Mistakes are printed.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from typing import Dict, List, Tuple
from urllib.parse import urljoin

Samples = Dict[Tuple[str, str], float]


def read(path: str) -> Tuple[Samples, Dict[str, str]]:
    """The samples by name and labels, and the types of the families."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    samples: Samples = {}
    types: Dict[str, str] = {}
    with open(path, encoding="utf-8") as file:
        for family in text_string_to_metric_families(file.read()):
            assert family.name not in types, family.name
            assert family.documentation, family.name
            types[family.name] = family.type
            for sample in family.samples:
                key = (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())))
                assert key not in samples, key
                samples[key] = sample.value
    return samples, types


def check_text(metrics: str, status_path: str) -> None:
    samples, types = read(metrics)
    with open(status_path, encoding="utf-8") as file:
        status = json.load(file)
    store = status["stores"][0]
    counters = store["counters"]
    labels = f"store={store['name']}"
    assert counters["writes"] > 0
    fields = {
        "reads_total": "reads",
        "writes_total": "writes",
        "write_bytes_total": "write_bytes",
        "open_ops": "open_ops",
    }
    for name, field in fields.items():
        assert samples[f"dsaio_store_{name}", labels] == counters[field], name
        classes = [v for (n, k), v in samples.items() if n == f"dsaio_class_{name}" and k.endswith(labels)]
        users = [v for (n, _), v in samples.items() if n == f"dsaio_user_{name}"]
        assert len(classes) == 3 and sum(classes) == sum(users) == counters[field], (name, classes, users)
    ops = counters["reads"] + counters["writes"] + counters["fsyncs"]
    assert samples["dsaio_store_latency_seconds_count", labels] == ops
    assert abs(samples["dsaio_store_latency_seconds_sum", labels] - counters["latency_sum_nsec"] / 1e9) < 1e-8
    p50 = counters["latency_p50_nsec"] / 1e9
    buckets = sorted((float(k.split(",")[0][3:]), v) for (n, k), v in samples.items()
                     if n == "dsaio_store_latency_seconds_bucket" and k.endswith(labels))
    above = next(le for le, n in buckets if n >= ops / 2)
    assert above / 5 <= p50 <= above * 1.2, (p50, buckets)
    assert samples["dsaio_pool_size_bytes", ""] == status["pool"]["size_bytes"]
    assert types["dsaio_store_latency_seconds"] == "histogram" and types["dsaio_build"] == "info"
    assert abs(samples["dsaio_uptime_seconds", ""] - status["uptime_usec"] / 1e6) < 100


def check_dashboard(metrics: str, dashboard: str) -> None:
    names = {name for name, _ in read(metrics)[0]}
    with open(dashboard, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    asked: List[str] = [name for panel in panels for target in panel["targets"]
                        for name in re.findall(r"dsaio_\w+", target["expr"])]
    assert asked and not set(asked) - names, set(asked) - names


def fetch(url: str, wanted: str, text: str, path: str = "", how: str = "") -> None:
    request = urllib.request.Request(urljoin(url, path) if path else url)
    if how == "--body":
        request.data = b"x" * 100
        request.method = "GET"
    elif how == "--put":
        request.method = "PUT"
    elif how == "--headers":
        request.add_header("X-Long", "x" * 100000)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, body, kind = answer.status, answer.read().decode(), answer.headers["Content-Type"]
            assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8", kind
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read().decode()
    assert status == int(wanted), status
    assert text in body, body


{"text": check_text, "dashboard": check_dashboard, "fetch": fetch}[sys.argv[1]](*sys.argv[2:])
