"""Copies of compacted topics: two instances take turns to read each log anew (decision 40).

- clearing: which generations may go. What is read, and what may be read next, stays; so does whatever ends beyond the holder
- coordination: the coordination topic: by it, instances tell each other to read a role log now, and not only at the next look
- dues: what the clock says of a turn: whether it is over, and who may act. All times are of the store's clock, so that no two processes differ
- entries: entries for a role log: what each of the four says, made of the entry before it
- events: events by which instances tell each other to look at a role log: how each is spelled as a record of the coordination topic
- freshness: rule W: whether a generation has been read fast enough to have seen every tombstone, which Kafka keeps for `delete.retention.ms` only
- partition_turn: one compacted partition in this process's hands: it looks at storage, lets the turn decide, and carries out what was decided
- reading: a generation that this process fills: its feed, and how fresh it is (rule W)
- run: runs a process of an instance, from a configuration to its end: opens the parts, and closes what it opened
- service: a process of an instance, until it is stopped: the partitions that the instance's group gives it, and what they share
- sights: what storage shows of a compacted partition: how whole a copy is, and where that ends what readers are given
- turn: the turn of one partition, as one process sees it: state, event -> state, effects. Nothing here waits, asks or remembers by itself
"""
