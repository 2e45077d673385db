"""Two examples for each command, which end its help."""

from typing import Final

EXAMPLES: Final = {
    "": ("config reference", "backup --until-end"),
    "demo": ("demo", "demo --records 20000"),
    "backup": ("backup --until-end", "backup -c /etc/archiver/archive.yaml --log-format json"),
    "topics": ("topics", "topics --accept-gone orders"),
    "ls": ("ls", "ls orders --segments --url s3://my-bucket/kafka"),
    "cat": ("cat orders --partition 0 --limit 10", "cat orders --from 2026-11-20T14:00:00Z --follow"),
    "compacted run": ("compacted run --instance a", "compacted run --instance a --initial-role active"),
    "compacted status": ("compacted status", "compacted status --topics 'cust.*' --against-kafka"),
    "compacted clear": ("compacted clear --force customers-0", "compacted clear --force customers-0 -c archive.yaml"),
    "groups show": ("groups show", "groups show --groups 'billing.*' --as-of 2026-11-20T14:00:00Z"),
    "groups translate": (
        "groups translate --target target.yaml --restore ec01a5f820ae2e60",
        "groups translate --target target.yaml --restore ec01a5f820ae2e60 --rename-group billing=billing-test",
    ),
    "groups apply": (
        "groups apply --target target.yaml --restore ec01a5f820ae2e60 --dry-run",
        "groups apply --target target.yaml --restore ec01a5f820ae2e60 --groups 'billing.*'",
    ),
    "groups rollback": (
        "groups rollback --target target.yaml --restore ec01a5f820ae2e60 --dry-run",
        "groups rollback --target target.yaml --restore ec01a5f820ae2e60 --groups 'billing.*'",
    ),
    "groups fold": ("groups fold --dry-run", "groups fold"),
    "import kafka-log": (
        "import kafka-log /mnt/broker-1/kafka-logs /mnt/broker-2/kafka-logs --dry-run",
        "import kafka-log /mnt/broker-1/kafka-logs --topics 'orders|cust.*' --committed-only",
    ),
    "import kafka-backup": (
        "import kafka-backup /mnt/kafka-backup --cluster-id 5L6g3nShT-eMCtK--X86sw --dry-run",
        "import kafka-backup /mnt/kafka-backup --cluster-id 5L6g3nShT-eMCtK--X86sw --topics 'orders'",
    ),
    "import osodevops": ("import osodevops /mnt/backups --dry-run", "import osodevops /mnt/backups --topics 'orders'"),
    "import avro": (
        "import avro --layout trivadis /mnt/avro --dry-run",
        "import avro --layout kafka-data-keep /mnt/avro --rename orders=orders-old",
    ),
    "import kafka-0.7": ("import kafka-0.7 /mnt/kafka --dry-run", "import kafka-0.7 /mnt/kafka --keep-positions"),
    "export kafka-backup": ("export kafka-backup /mnt/export", "export kafka-backup /mnt/export --topics 'cust.*'"),
    "inspect": (
        "inspect topics/orders/0/orders+0-00000000000000000000.data",
        "inspect orders+0-00000000000000000000.data --format json",
    ),
    "verify": ("verify", "verify --level records --topics 'orders|cust.*'"),
    "restore": (
        "restore --target target.yaml --topics 'orders|cust.*' --dry-run",
        "restore --target target.yaml --topics orders --rename orders=orders-restored --until 2026-11-20T14:00:00Z",
    ),
    "retention": ("retention --dry-run", "retention --metrics-file /var/lib/node_exporter/archiver.prom"),
    "hold add": (
        "hold add audit-2026 --topics 'orders,billing-*' --reason 'request of the auditors'",
        "hold add case-7 --topics orders --from 2026-11-01T00:00:00Z --until 2026-11-20T00:00:00Z --reason 'case 7'",
    ),
    "hold list": ("hold list", "hold list --format json"),
    "hold release": ("hold release audit-2026", "hold release audit-2026 --by alice"),
    "query": (
        'query "SELECT partition, count(*) FROM orders GROUP BY partition"',
        'query "SELECT offset, key FROM orders WHERE value IS NULL" --from 2026-11-20T14:00:00Z',
    ),
    "spark-env pack": ("spark-env pack --output archiver-env.tar.gz", "spark-env pack --output env.tar.gz --force"),
    "spark-env entry": ("spark-env entry", "spark-env entry >entry.py"),
    "status": ("status", "status --max-age 1h --format json"),
    "report": ("report --html archive.html", "report --html archive.html --url s3://my-bucket/kafka"),
    "drill": ("drill --target target.yaml --last 2h", "drill --check report.json --key drill.pub"),
    "copy": ("copy --to s3://other-bucket/kafka", "copy --to second.yaml --format json"),
    "cluster show": ("cluster show", "cluster show --format json"),
    "cluster diff": ("cluster diff --target target.yaml", "cluster diff --target target.yaml --part acls"),
    "cluster apply": ("cluster apply --target target.yaml", "cluster apply --target target.yaml --part quotas"),
    "version": ("version", "version --format json"),
    "restore list": ("restore list", "restore list --url s3://my-bucket/kafka"),
    "restore show": ("restore show my-restore", "restore show my-restore --format json"),
    "config show": ("config show", "config show -c /etc/archiver/archive.yaml --format json"),
    "config reference": ("config reference", "config reference --format json"),
    "completion": (
        "completion bash >~/.local/share/bash-completion/completions/archiver",
        "completion zsh >/usr/local/share/zsh/site-functions/_archiver",
    ),
}  # fmt: skip


def examples_of(prog: str) -> str:
    """Return the end of the help of a command, such as `archiver compacted run`; empty for a group of commands."""
    lines = EXAMPLES.get(prog.removeprefix("archiver").lstrip(), ())
    return "\n".join(["\nexamples:", *(f"  archiver {line}" for line in lines), ""]) if lines else ""
