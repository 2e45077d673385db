"""Where consumer groups stand: kept, told as of a time, translated, set on a target.

- application: sets groups of a target cluster to wanted positions, and sets them back: each position only from where it was noted to stand
- application_decisions: what is done with each position of a group, by where it stands, where it is to stand, and what was noted of it
- application_notes: what an application notes of each group before it sets positions: where the group stood, and where it is to stand
- application_report: what came of an application, or of a rollback: of each group every position, before, wanted and after
- approximation: where groups go on in a partition into which several sources were dealt: at the lowest record that they had not read of any source
- archived_log: what the archive has of one partition of `__consumer_offsets`: what its records still say, and what may be missing
- archived_position: where a group stood in a partition of one life of a topic, by the archive alone
- commit_log: what one partition of `__consumer_offsets` says, reduced while its records pass: of each key what still says something
- doubts: where records of `__consumer_offsets` may be missing in the archive, so that a position is not known
- episodes: episodes: a position from its first commit until it is removed, told by the last commit of that time
- fold_object: a fold: what the beginning of a partition of `__consumer_offsets` still says, as one Avro object of plain records
- folding: makes folds of `__consumer_offsets`: of an earlier fold, and of the objects above it
- folds: which folds of `__consumer_offsets` there are, and which of them a reader of a time begins with
- keeper: how the positions of consumer groups are kept: by archiving their own topic, or as facts
- lives: which of a topic's lives a commit belongs to, where several topics have had the name one after the other
- log_beginning: the beginning of a partition of `__consumer_offsets`, read from folds: what a reader of a time need not read of objects
- own_group: which consumer group the backups of an archive share: their own, or the one that all archives had before
- position_moves: moves positions of one group, each only from where it is said to stand; then reads back where the group stands
- positions: where consumer groups stood as of a time, by the archive alone: of each position the last commit, and what became of it
- shown: where groups stand, with what there is of each topic: what `archiver groups show` tells
- snapshots: snapshots of where consumer groups stood, as facts: the newest as of a time
- translation: where a group is to stand on the target: its position in a source partition, translated through the map of a restore
- wanted_positions: where groups are to stand on a target cluster: what an application is given
"""
