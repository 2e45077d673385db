"""Where groups go on in topics that were dealt into another number of partitions: the deal is done again, and the target's batches are counted.

1. See that each target was read back, and is the topic that the restore has filled.
2. Deal out each source partition again, sending nothing: how many records that a group had read went to each target partition.
3. Find in each target partition where so many records of each source end, by the headers of its batches.
"""

import asyncio
from collections.abc import Mapping, Sequence

from pyspark import SparkContext

from archiver.errors import ArchiverError
from archiver.kafka.client import KafkaClient
from archiver.restore.deal_replay import Replay, run_replay
from archiver.restore.dealt_log import run_dealt_log
from archiver.restore.dealt_positions import DealtPositions, DealtTopic, failed_positions, positions_of
from archiver.restore.task import failed
from archiver.spark.tasks import run_on_spark


def approximate_positions(spark: SparkContext, topics: Sequence[DealtTopic]) -> list[DealtPositions]:
    """Find where the groups of each topic go on, so that they may read again, and miss nothing. Changes nothing.

    Topics have different names. What is wrong with a topic is told in its own result, in the order of the topics; only what ends Spark is raised.
    """
    wanted = [topic for topic in topics if topic.groups]
    results = {topic.target: DealtPositions(topic=topic.target, refused=topic.refused) for topic in topics}
    results |= asyncio.run(_refused(wanted))  # 1.
    asked = _without_errors(wanted, results)
    replays = _replay(spark, asked)  # 2.
    for topic in asked:
        if failures := [one.failure for one in replays[topic.target] if one.failure is not None]:
            results[topic.target] = failed_positions(topic, failures)
    asked = _without_errors(asked, results)
    results |= _locate(spark, asked, replays)  # 3.
    return [results[topic.target] for topic in topics]


def _without_errors(topics: Sequence[DealtTopic], results: Mapping[str, DealtPositions]) -> list[DealtTopic]:
    return [topic for topic in topics if not results[topic.target].error]


async def _refused(topics: Sequence[DealtTopic]) -> dict[str, DealtPositions]:
    """Return the topics in which no group can be placed."""
    results: dict[str, DealtPositions] = {}
    for topic in topics:
        try:
            async with KafkaClient(topic.kafka) as client:
                found = await client.describe_topics([topic.target])
            topic.check(found.get(topic.target))
        except ArchiverError as error:
            results[topic.target] = failed_positions(topic, [failed(topic.target, 0, error, topic.target)])
    return results


def _replay(spark: SparkContext, topics: Sequence[DealtTopic]) -> dict[str, list[Replay]]:
    tasks = [task for topic in topics for task in topic.replay_tasks]
    found: dict[str, list[Replay]] = {topic.target: [] for topic in topics}
    for one in run_on_spark(spark, tasks, run_replay, lambda task: len(task.parts)):
        found[one.target_topic].append(one)
    return found


def _locate(
    spark: SparkContext, topics: Sequence[DealtTopic], replays: Mapping[str, Sequence[Replay]]
) -> dict[str, DealtPositions]:
    tasks = [task for topic in topics for task in topic.log_tasks(replays[topic.target])]
    reports = run_on_spark(spark, tasks, run_dealt_log, lambda task: task.end - task.start)
    return {
        topic.target: positions_of(topic, [one for one in reports if one.topic == topic.target]) for topic in topics
    }
