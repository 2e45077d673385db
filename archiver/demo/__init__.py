"""The quick start: a real broker, an embedded S3, and the story that they tell.

- sandbox: real servers without containers, for the demo and the tests
- shop: orders of a small shop: readable records, with everything that a copy easily loses
- stage: the stage of the demo: a broker, an S3 and a folder, in which commands run as a user runs them
- story: the story of the demo, chapter by chapter
- teller: prints the story: with colours on a terminal, plain elsewhere
- witness: writes and reads topics as any Kafka client does: by plain confluent-kafka
"""

from archiver.demo.story import run_demo

__all__ = ["run_demo"]
