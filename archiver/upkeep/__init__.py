"""Looks after an archive that stands: verify, compare, inspect.

- check: objects read and checked, some of them a task
- compare: archive and cluster compared, a partition a task
- comparison: does the archive hold what Kafka still has of a partition? Compared object by object, by count and digest
- findings: what a task that checks or compares a part of the archive found
- inspection: one object, taken apart (`inspect`): header, facts, blocks, and whether they agree
- verify: is the archive whole? What is looked at, level by level, and what is found
"""
