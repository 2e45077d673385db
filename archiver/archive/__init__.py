"""What lies in the bucket, written and read.

- archived_topic: what the archive has of a topic in one of its lives, and what of that is wanted
- block_budget: memory that is shared: by all open segments, and by all threads that decode what was fetched
- catalog: the archive's topics, each as one of its lives has it
- chosen_records: which of an object's records a restore takes, as it is written down beside its plan
- cluster_topics: the topics of a cluster as a backup looks for them
- control: small facts beside the records
- control_census: what lies beside the records: how much of it there is, and what of it is gone
- copies: copies of compacted topics: a log as an instance has read it, once from its beginning on
- entries: what is known of many objects, as columns
- holdings: what the archive holds, summed up (`ls`): from facts alone, without a body or a kernel
- index: an index of segment facts, so that a reader need not ask for each segment
- index_file: one file of the index of segment facts
- inventory: A listing -> segments per partition: what is readable, shadowed, missing, strange
- layout: every object key is spelled and parsed here, and nowhere else
- listing: the segments under `topics/`, and the strangers
- lookup: the facts of listed segments: as the index knows them, or as the objects themselves tell
- message_format: topics that are written in a message format of before Kafka 0.11
- offset_map: an offset map: where a restore has put the records of a partition
- parts: what is read of objects, and what their facts tell of it: of millions as columns, and one by one
- plain_records: records of the archive as plain values (`cat`)
- probe: may an archive lie in this store? A writer asks that at each start
- reader: A partition's records out of the archive, in order, by the read rule
- segment: one partition's open segment
- segment_facts: the facts of a segment, as values and as the text that metadata and Avro header carry
- segments: the segments of a partition, and what is read of them: as columns, and one by one
- spool: local files that hold the blocks of open segments
- v1_bounds: both ends of an object: all that is read where a whole object would be too much
"""
