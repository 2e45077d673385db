"""Where consumer groups stand: kept, told as of a time.

- archived_log: what the archive has of one partition of `__consumer_offsets`: what its records still say, and what may be missing
- archived_position: where a group stood in a partition of one life of a topic, by the archive alone
- commit_log: what one partition of `__consumer_offsets` says, reduced while its records pass: of each key what still says something
- doubts: where records of `__consumer_offsets` may be missing in the archive, so that a position is not known
- endings: whether a position was removed with its topic: then it is offered where the topic is restored; and what removed it, to show
- episodes: episodes: a position from its first commit until it is removed, told by the last commit of that time
- joined_positions: positions from `__consumer_offsets` and from snapshots, joined: of each position the later word holds
- keeper: how the positions of consumer groups are kept: by archiving their own topic, or as facts
- live_logs: where the live partitions of `__consumer_offsets` end, and which open transaction holds one back: its commits are not archived before that ends
- lives: which of a topic's lives a position belongs to, where several topics have had the name one after the other
- missed_positions: positions of which the log has nothing as of the time, in one life of their topic, and may have had: they are unknown, never none
- offsets_partition: which partition of `__consumer_offsets` the positions of a group lie in, and up to when that is archived
- own_group: which consumer group the backups of an archive share: their own, or the one that all archives had before
- position_rows: the rows of a commit log that are of positions: columns, position by position, each in the order of the log
- positions: where consumer groups stood as of a time, by the archive alone: of each position the last commit, and what became of it
- row_lives: the life of each row of a commit log: by the topic id that was committed, else by when positions in the topic stood
- shown: where groups stand, with what there is of each topic: what `archiver groups show` tells
- snapshots: snapshots of where consumer groups stood, as facts: as of a time, the newest that tells of each group
- told_log: one partition of `__consumer_offsets`, told as of a time: its rows, the lives of their topics, and the episodes up to the time
"""
