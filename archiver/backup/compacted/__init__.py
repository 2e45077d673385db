"""Copies of compacted topics: two instances take turns to read each log anew (decision 40).

- clearing: which generations may go. What is read, and what may be read next, stays; so does whatever ends beyond the holder
- clearing_run: deletes copies that are read no more: first all is asked, then each batch of deletes is preceded by a look at the role log
- clearing_survey: reads what a clearing is decided on: role logs, what stands, who reads it. Deletes nothing
- dues: what the clock says of a turn: whether it is over, and who may act. All times are of the store's clock, so that no two processes differ
- entries: entries for a role log: what each of the four says, made of the entry before it
- freshness: rule W: whether a generation has been read fast enough to have seen every tombstone, which Kafka keeps for `delete.retention.ms` only
- listed_copies: the generations that stand, by a listing, and what their objects cover: each object is asked for its facts once
- turn: the turn of one partition, as one process sees it: state, event -> state, effects. Nothing here waits, asks or remembers by itself
"""
