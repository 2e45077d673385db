"""Copies of compacted topics: two instances take turns to read each log anew (decision 40).

- accepting: what of a topic's logs stands against its copies, and that a user accepts it: then copies that are read no more go again
- alarms: what of compacted topics somebody should look at: a line for each, made of the status. Metrics count the same
- clearer: clears copies that are read no more, now and then, of the partitions that this process is active for
- clearing: which generations may go. What is read, and what may be read next, stays; so does whatever ends beyond the holder
- clearing_run: deletes copies that are read no more: first all is asked, then each batch of deletes is preceded by a look at the role log
- clearing_survey: reads what a clearing is decided on: role logs, what stands, who reads it. Deletes nothing
- coordination: the coordination topic: by it, instances tell each other to read a role log now, and not only at the next look
- dues: what the clock says of a turn: whether it is over, and who may act. All times are of the store's clock, so that no two processes differ
- entries: entries for a role log: what each of the four says, made of the entry before it
- events: events by which instances tell each other to look at a role log: how each is spelled as a record of the coordination topic
- freshness: rule W: whether a generation has been read fast enough to have seen every tombstone, which Kafka keeps for `delete.retention.ms` only
- holder_watch: whether the copy that holds is whole: each process looks it over now and then, as a reader would, and asks each object once
- instance_metrics: the metrics of a process of an instance, besides those that a backup has, too: each is declared here, once
- instance_vitals: what metrics and health checks say of a process of an instance: what it is for each partition, how far, and what is wrong
- listed_copies: the generations that stand, by a listing, and what their objects cover: each object is asked for its facts once
- live_logs: where the logs of compacted partitions begin and end now, as the cluster tells, for those lives that still have one
- partition_turn: one compacted partition in this process's hands: it looks at storage, lets the turn decide, and carries out what was decided
- reading: a generation that this process fills: its feed, and how fresh it is (rule W)
- roleless: what of compacted topics nobody archives, because no instance has a role in it: `verify` complains of that
- run: runs a process of an instance, from a configuration to its end: opens the parts, and closes what it opened
- service: a process of an instance, until it is stopped: the partitions that the instance's group gives it, and what they share
- sights: what storage shows of a compacted partition: how whole a copy is, and where that ends what readers are given
- standing_watch: what metrics show of what lies in storage: each process reads now and then how the partitions stand that it holds
- status: how compacted topics stand, told from storage alone: who is active, what stands, what is next, and what keeps copies from going
- taken_topics: the topics that an instance takes: included, compacted, and recorded in the archive; and what their configs say
- turn: the turn of one partition, as one process sees it: state, event -> state, effects. Nothing here waits, asks or remembers by itself
"""
