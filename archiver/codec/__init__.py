"""Records in memory, and bytes <-> Frame.

- arrow_scan: objects -> Arrow record batches of chosen columns and rows, without a frame between
- avro: Avro object container files: of AvroKafkaRecord <-> Frame; header and blocks of any
- batch: record batches v2, as a broker sends them -> Frame
- batch_encoder: frame -> record batches v2 of one idempotent producer
- compression: compression by name, for record batches (Kafka's codecs) and for Avro blocks (Avro's)
- frame: frame: n records of one partition as columns over byte buffers
- large_record: one record as AvroKafkaRecord v2.0 in pieces, however large it is
- rows: frame -> plain Python values, a row at a time: for people, not for bulk
- schemas: the Avro schemas of the archive, as text
- selection: which records a reader wants
- tally: what a run of records adds up to: how many, from where to where, when, how large, and their digest
- warm: compile all kernels now, so that no later start has to
"""
