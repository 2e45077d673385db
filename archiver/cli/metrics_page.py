"""Generates the reference page of metrics, docs/metrics.md, from their declarations."""

from collections.abc import Iterable
from typing import Final

from archiver.backup.compacted.work.instance_metrics import INSTANCE_METRICS
from archiver.backup.reports.metrics import METRICS
from archiver.process.output.declared_metrics import Declared
from archiver.upkeep.retention.sweeping.sweep_metrics import SWEEP_METRICS

_PAGE: Final = """\
# Metrics

`archiver backup` and `archiver compacted run` serve these at `http://HOST:PORT/metrics`, when `metrics.listen` is `HOST:PORT`. `make docs` writes this page from the declarations in the program.
`/healthz` and `/readyz` beside it answer 200, or 503 with the reason in one line. `--until-end` serves them for as long as it runs; if the address is in use,
most often by a running backup, it reports that and continues without an endpoint.

The endpoint has no password and no TLS. Every user of the port can read the names of the archived topics, with their rates, lags, open transactions and
errors, and on `/readyz` perhaps addresses of brokers. It shows no record and no credential, and nothing can be changed there. Let it listen on 127.0.0.1, or where only the monitoring gets (a
pod's network with a policy); else put a proxy with TLS before it.

Counters count since the process started, over all partitions that it held meanwhile. Gauges are worked out at each scrape, from the partitions that
this instance holds at that moment. A topic's partitions may be spread over instances: take `sum`, `max` or `min by (topic)`. Unowned partitions
have no gauge: also alert with `absent()`.

| name | type | labels | meaning |
| --- | --- | --- | --- |
{rows}

## Of instances alone

A process of `archiver compacted run` has all of the above: lag, age and retention are those of the partitions that it is active for, whose copy is read. `/readyz` speaks of this
process alone: that it is in its group, not that both instances are at work. It has these besides; "it" is the process. Alarms and generations are read from
storage every five times `compacted.interval`.

| name | type | labels | meaning |
| --- | --- | --- | --- |
{instance_rows}

## Of sweeps

A retention sweep is a job that ends, so nothing serves its metrics. `archiver retention --metrics-file FILE` writes them at its end, whole or not at all, for
[node_exporter's textfile collector](https://github.com/prometheus/node_exporter#textfile-collector): give it a file `*.prom` in the collector's folder. All of them describe that one run. A run
that fails before its end leaves the file of the run before, so watch its age. A dry run writes none. `archiver retention --last` shows the same from the archive, with reasons.

| name | type | labels | meaning |
| --- | --- | --- | --- |
{sweep_rows}

## Alarms worth having

| when | meaning |
| --- | --- |
| `increase(archiver_branches_total[1h]) > 0` | the log was cut back: records that were archived are no longer in Kafka |
| `increase(archiver_holes_total{{cause="expired"}}[1h]) > 0` | Kafka deleted records before they were archived |
| `increase(archiver_holes_total{{cause="unreadable"}}[1h]) > 0` | unreadable batches were skipped: `archiver_unreadable_offsets_total` has their partitions, and the log the offsets |
| `min by (topic) (archiver_retention_left_seconds) < 86400` | within a day it will |
| `max by (topic) (archiver_rpo_seconds) > 900` | the archive is behind; in quiet times this stays near `backup.segment.age` |
| `archiver_partitions_failing > 0` | a partition does not get on; the log names it and the reason |
| `max by (topic) (archiver_topics_gone) > 0` | an archived topic was deleted: [restore it, or accept that](runbooks.md#a-topic-was-deleted) |
| `absent(archiver_partitions)`, or `/readyz` not 200 for minutes | no instance is in the group, or the cluster or the store is unreachable: `/readyz` has the reason |
| `archiver_open_transaction_age_seconds > 900` | a producer left a transaction open; nothing behind it can be read until it ends |

Of instances ([what to do](runbooks.md#when-an-instance-alarms)). Both instances report a partition, each from its own view: take `max by (topic, kind)`.

| when | meaning |
| --- | --- |
| `max by (topic, kind) (archiver_compacted_alarms{{kind=~"unreadable\\|damaged\\|in-question\\|unheard"}}) > 0` for 15 minutes | `archiver compacted status` describes it |
| `max by (topic, kind) (archiver_compacted_alarms{{kind=~"no-role\\|no-copy\\|overdue\\|unsure\\|unattainable"}}) > 0` for an hour | the same; while the first copy is made, `no-role` and `no-copy` are to be expected |
| `sum by (topic) (archiver_compacted_partitions{{role="active"}}) < 1` for an hour, or `absent(archiver_compacted_partitions)` | no process is active for anything of a topic |
| `min by (topic) (archiver_compacted_turn_left_seconds) < -86400` | the next copy is due since a day, and is not complete yet |
| `increase(archiver_compacted_given_up_total[1d]) > 0` | objects of a new copy were gone, or damaged, before it was read |
| `increase(archiver_compacted_look_failures_total[15m]) > 5` | a role log cannot be read; the log has the reason |
| `increase(archiver_compacted_clearing_failures_total[1d]) > 0` | copies that are read no more stay: the right DeleteObject on `compacted/` may be missing |

Of sweeps:

| when | meaning |
| --- | --- |
| `time() - archiver_sweep_last_run_timestamp_seconds > 2 * 86400`, or `absent(archiver_sweep_last_run_timestamp_seconds)` | no sweep has finished for two days: the archive keeps more than it should; the log of the job has the reason |
| `archiver_sweep_topics{{state="waiting"}} > 0` | the deletion of a topic's objects waits for an agreement: look at `archiver retention --dry-run` |
| `archiver_sweep_refused_deletes > 0 or archiver_sweep_failures > 0 or archiver_sweep_topics{{state="stopped"}} > 0` | objects were not deleted; `archiver retention --last` shows which, and why |
"""


def metrics_page() -> str:
    """Return docs/metrics.md."""
    return _PAGE.format(rows=_rows(METRICS), instance_rows=_rows(INSTANCE_METRICS), sweep_rows=_rows(SWEEP_METRICS))


def _rows(declared: Iterable[Declared]) -> str:
    return "\n".join(f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.meaning} |" for one in declared)
