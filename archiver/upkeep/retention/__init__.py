"""Deletes what topics keep no longer: what goes is planned, shown, and proved before anything is deleted.

- agreed_limits: the limits that a sweep compares with: those of the last agreement, and longer ones that sweeps have seen since
- cluster: what the live cluster tells of topics: which they are, what they keep, where their logs begin. What it does not tell is told as such
- covering_folds: the folds that stand for what a sweep takes of `__consumer_offsets`: chosen with the plan, made and read back before anything goes
- covers: objects that cover others: read whole before what they cover goes, and asked again right before that
- debris: control objects that nobody needs any longer: which of them go, and why others stay. Pure: what storage says comes from the caller
- debris_survey: lists the control objects that may be debris, and says which go. Deletes nothing
- debris_sweep: deletes debris, one group of control objects after the other. That a group goes, is written down before
- held: lists what a hold covers, before and after it is put: a sweep under way may delete some of it meanwhile
- kept_plans: plans of sweeps that were shown, kept for an hour: so that what is agreed on is what was shown, and nothing else goes
- left_lying: takes back what counts as swept and still lies there: held, denied, revived, or planned by a run that died. A later loss of it must show
- limits: how long, and how much of a partition, a topic keeps: its own configs, as they hold; the longer of several; so many times as much
- partition_plan: which objects of a partition go, and why each of the others stays. Pure: what storage and cluster say comes from the caller
- plan: the plan of a sweep, as a value: what goes of each partition, of which topics nothing goes and why
- policy: which limits a sweep goes by: a policy that keeps less counts only after a time of grace. Pure
- shadowed: objects that no reader reads, since another object covers all of their offsets: which of them go. Pure: what storage says comes from the caller
- survey: surveys one partition for a sweep: lists it, asks those objects that may go, and says which go. Deletes nothing
- sweep: carries out the plan of a sweep, of each partition one life after the other. What goes is written down before it is deleted
- sweep_metrics: the metrics of one sweep, as a file for node_exporter's textfile collector: a sweep is a job that ends, and nobody can scrape it
- sweep_survey: reads what a sweep is decided on, but for the objects: topics, policies, holds, restores that run, and what the cluster tells
- topic_terms: by which terms a topic is swept, or why it is not. Pure: what storage and cluster say comes from the caller
"""
