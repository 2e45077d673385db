"""Kafka -> archive.

- arrival: what a backup that runs until stopped tells until it has work
- backlog: what waits in partitions that nobody can open for now: how much, and how old its oldest record is
- commits: which positions are committed to the group, and when
- cut_back: where the archive of a partition and the broker's log part, after the log was cut back
- diagnosis: what is wrong with a partition whose records do not come, and what follows from it
- feed: one partition between fetch and writer: where it is, what waits, and what became of it
- fetching: fetching: which broker each partition is fetched from, and when; one fetch at a time per broker
- identity: whether a name still stands for the topic that was archived, where no topic id tells: its records do
- indexer: what a backup does for the index of facts, beside its work
- ledger: what a backup tells of itself while it works
- metrics: what a running backup shows of itself
- metrics_server: the HTTP endpoint of a running backup: /metrics, /healthz, /readyz
- open_transactions: transactions that stay open and hold the last stable offset back
- opener: the ways of partitions into a backup: record their topics, read where their archives end, make feeds of them
- partition_writer: one partition on its way into the archive
- pump: the work of a backup: one task at a time per partition, which archives what was fetched of it
- put_turns: whose put is next: topics take turns, and one whose puts hang or fail has few at a time, so that others always find a thread
- request: what a backup is asked to do, and the parts that are made for it
- retry: try again, until stopped, what a retry may heal
- run: the two kinds of backup, from a configuration to its end: opens the parts, and closes what it opened
- run_endpoint: the HTTP endpoint of a backup up to the end of now: for as long as it runs
- service: A backup that runs until stopped
- start_offsets: where partitions begin that have no archive yet, when a backup was told not to begin at their beginning
- topic_recorder: what the archive knows of the topics that are backed up: written down when it changes, and asked whether it still holds
- unreadable: A batch that cannot be read: whether that is so for good, how far it reaches, and what follows
- until_end: A backup up to the end of now
- vitals: the state of a running backup as its metrics and its health show it
"""
