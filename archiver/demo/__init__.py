"""The quick start: a real broker, an embedded S3, and the story that they tell.

- sandbox: real parts without containers, for the demo and the tests
- shop: orders of a small shop: readable, and with all that is easily lost on the way
- stage: the stage: a broker, an S3, a folder; commands run as a user runs them; and all of it gone in the end
- story: the story, chapter by chapter
- teller: how the story is told: lines, with colours on a terminal and plain elsewhere
- witness: what any Kafka client does and sees: plain confluent-kafka, and none of our wire code
"""

from archiver.demo.story import run_demo

__all__ = ["run_demo"]
