"""The loops over bytes, compiled by numba, which only this room knows.

- avro_decode: the kernel from the bytes of Avro records, v1.0 and v2.0, to a frame
- avro_encode: the kernel from a frame to the bytes of AvroKafkaRecord v2.0
- batches: kernels between record batches v2 and a frame's table
- commits: kernels over records of `__consumer_offsets`: which of them still say something, and what they say
- digest: the record digest of docs/format.md §5, and the other running facts of records
- hashing: XXH64, as its specification has it (tested against the reference implementation)
- headers: headers as Kafka writes them
- jit: how kernels are compiled: where the compiled code is kept, and the one decorator
- murmur2: which partition a record goes to by its key, as Kafka's Java client has it
- rows: kernels over a frame's rows: whether their offsets rise, and where their headers are
- runs: the kernels between runs of an offset map and the bytes of OffsetRun v1.0
- scan: the kernel from Avro records straight to the buffers of Arrow arrays
- varint: zigzag varints, which Kafka and Avro spell alike, copies, and range checks
"""
