"""Records in memory, and bytes <-> Frame.

- arrow_scan: archived objects -> Arrow record batches of chosen columns and rows, without a frame between
- avro: Avro container files of AvroKafkaRecord <-> Frame, and header and blocks of any container
- batch: record batches v2, as a broker sends them -> Frame; control batches and records of aborted transactions are dropped here
- batch_encoder: frame -> record batches v2 of one idempotent producer
- compression: compression by name, for record batches (Kafka's codecs) and for Avro blocks (Avro's)
- frame: frame: n records of one partition as columns over byte buffers
- large_record: one record as AvroKafkaRecord v2.0 in pieces, so that a large one is never copied as a whole
- rows: frame -> records as plain Python values, one at a time: for people, not for bulk
- schemas: the Avro schemas of the archive, as text
- selection: which records a reader wants
- tally: adds up a run of records: their number, first and last offset, times, bytes, and digest
- warm: compile all kernels now, so that no later start has to
"""
