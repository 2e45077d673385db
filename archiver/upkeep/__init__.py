"""Looks after an archive that stands: verify, compare, inspect.

- check: reads and checks objects, some of them in each task
- compare: plans and runs the comparison of the archive with the cluster (`verify --against-kafka`), a partition in each task
- comparison: compares one partition's objects with what Kafka still has of them, by count and digest
- findings: what a task found that checks or compares a part of the archive
- inspection: one object, taken apart (`inspect`): header, facts, blocks, and whether they agree
- verify: is the archive whole? What each level of `verify` checks, and what is wrong
"""
