"""Everything that talks to brokers. Only this room knows the Kafka clients.

Reading order: settings, wire, codes, calls, client; then fetch, produce, admin.

- admin: creates, alters and deletes topics, through confluent-kafka's AdminClient
- agreed_topics: which topic has a name, or that none has it, where all brokers that are up say the same: one alone may be behind
- calls: the small requests: metadata, offsets, producers, transactions
- client: KafkaClient: one connection pool to a cluster, and what the archiver asks brokers
- cluster: what brokers tell of their cluster: topics, where partitions begin and end, open transactions
- codes: Kafka's error codes, and which error of ours each one is
- configs: configs of topics, and of brokers, as the brokers tell them
- connection: how bytes come in and go out: aiokafka's connections, with a receiver and a sender of ours
- creation: asks brokers which configs and replicas topics would have if they were created, and which may not be
- deletion: deletes topics by their ids, so that a newer topic of the same name stays
- emptiness: proves with the leader that a log is empty behind an offset
- epochs: where the log of a leader epoch ends, as the broker knows it
- fetch: fetches record batches as the brokers store them, by topic id where the broker can
- group: a consumer group as the archiver uses it
- group_commits: sets and deletes positions of consumer groups, as an administrator does: only where nobody is a member
- group_coordinators: which broker coordinates a consumer group, and where the group stands by that broker's word alone
- group_positions: the positions of consumer groups, asked of the brokers that coordinate them
- log_dirs: how many bytes of partitions lie on the brokers' disks
- log_reader: reads a partition's committed records from Kafka, in order, up to an end
- membership: membership of a consumer group: which partitions are ours, and hints of where their archives end
- produce: sends finished record batches v2, idempotently, one answer each
- refusal: explains why no broker lets us in: an error that says what, where, and what to check
- rights: what this user may do with topics, existing or not, and with the cluster, as the brokers tell
- security: who we are to a broker, and how we know that it is the one it says
- settings: the `kafka:` section of the configuration, for both clients
- tokens: tokens for SASL OAUTHBEARER
- wire: Kafka's wire format: our own requests, and how they go through aiokafka's connections
"""
