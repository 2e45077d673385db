"""Looks after an archive that stands: verify, compare, inspect.

- check: a task of `verify`: reads some of the archive's objects, and checks each
- compare: plans the comparison of the archive with Kafka (`verify --against-kafka`), and runs it, a partition in each task
- comparison: compares the records that Kafka still has of one partition with the archive's objects, by count and digest
- covered_ranges: compares the records that one object has with the facts of the objects that it covers
- findings: what a task of `verify` returns: how much it examined, and what is wrong
- inspection: takes one object apart (`inspect`): header, facts, blocks, and whether they agree
- lost_keys: finds keys that a copy of a compacted topic has, and that Kafka no longer has: deletions that the copy missed
- verify: checks an archive at each level of `verify`: its listing, single objects, control objects; names what is wrong
"""
