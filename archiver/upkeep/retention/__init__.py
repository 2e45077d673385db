"""Deletes what topics keep no longer: what goes is planned, shown, and proved before anything is deleted.

- limits: how long, and how much of a partition, a topic keeps: its own configs, as they hold; the longer of several; so many times as much
- partition_plan: which objects of a partition go, and why each of the others stays. Pure: what storage and cluster say comes from the caller
- policy: which limits a sweep goes by: a policy that keeps less counts only after a time of grace. Pure
"""
