"""Opens feeds that fill the generations of one partition, and puts their records before a generation becomes current.

Used by the partition's turn, which chooses the generations.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

from archiver.archive.copies.moments import LeftNote, Moment
from archiver.archive.copies.roles import Generation, RoleLog, RolePlace
from archiver.archive.format.layout import CopyKey
from archiver.archive.format.store_clock import epoch_ms
from archiver.archive.index.archived_end import position_of_copy
from archiver.archive.notes.topics import PartitionSource
from archiver.archive.segments.segment_facts import HoleCause
from archiver.backup.compacted.turn.reading import CopyFeedWatch
from archiver.backup.compacted.work.turn_inputs import Parts
from archiver.backup.partition.feed import Feed, FetchState
from archiver.backup.partition.partition_writer import PartitionWriter, refuse_stranger
from archiver.backup.partition.pump import Pump
from archiver.backup.partition.segment_home import CopyHome
from archiver.errors import CorruptSegmentError

_SETTLE_S: Final = 60.0  # longest wait of a complete candidate for its puts
_STEP_S: Final = 0.02


async def open_feed(parts: Parts, source: PartitionSource, copy: CopyKey, reading: CopyFeedWatch) -> Feed:
    """Return a feed that continues at the end of a copy's objects. Raises ArchiverError if they have a gap, or are a stranger's."""
    silences = parts.sink.silence_counter.silences  # a silence during the read must show at the put
    end = await parts.pool.call(position_of_copy, parts.archive, copy)
    if end.key:
        refuse_stranger(source, end.key, topic_id=end.topic_id, cluster_id=end.cluster_id)
    if end.gap is not None:
        raise CorruptSegmentError(f"{source}: {end.spell_gap(end.gap)}")
    home = CopyHome(parts.archive, copy, parts.catalog.note_put)
    writer = PartitionWriter(source, end, parts.sink, silences=silences, confirm=reading.refuse_put, home=home)
    if not end.key:
        which = source.topic, source.partition
        log_start = (await parts.client.offsets([which]))[which].log_start
        if log_start > 0:  # for clearing: a copy that begins lower has more
            writer.skip(log_start, HoleCause.EXPIRED, is_news=False)
    return Feed(writer=writer)


def begun_moment(
    parts: Parts, place: RolePlace, generation: int, role_log: RoleLog | None, left: LeftNote | None
) -> Moment | None:
    """Return the moment from which a generation continues; None: it broke the rule for good.

    A future moment is from before the store's clock was set back: its age is unknown.
    """
    own = Generation(instance=parts.instance, number=generation)
    copy = None if role_log is None else role_log.entry.copy
    if copy is not None and copy.generation == own and not copy.is_sure:
        return None
    heard = parts.notes.heard(place).get(own)
    begun_at = None if role_log is None else role_log.put_at.get(generation)
    if left is not None:
        moment = left.moment
    elif heard is not None:
        moment = heard.moment
    else:  # before the put of its entry, nothing of it was read
        moment = None if begun_at is None else Moment(epoch_ms(begun_at), 0)
    is_to_come = moment is not None and moment.at_ms > parts.clock.latest_ms(parts.sink.clock())
    return None if is_to_come else moment


def pump_of(parts: Parts, feed: Feed) -> Pump:
    return next((one for one in parts.pumps if one.feeds.get(feed.key) is feed), parts.pumps[0])


async def settle(parts: Parts, readings: Collection[CopyFeedWatch]) -> None:
    """Put all held records of a complete candidate, and report its end in storage."""
    until_s = parts.sink.clock() + _SETTLE_S
    for reading in readings:
        feed = reading.feed
        while feed.fetches.state is FetchState.PAUSED and (feed.is_busy or feed.writer.holds_records):
            if feed.puts.failing_since_s is not None or parts.sink.clock() > until_s:
                break
            feed.writer.close_early()
            pump_of(parts, feed).advance(feed)
            await asyncio.sleep(_STEP_S)
        reading.report_durable()


def resume(parts: Parts, readings: Iterable[CopyFeedWatch]) -> None:
    """Continue fetching for generations that had stopped for a switch."""
    for reading in readings:
        if reading.feed.fetches.state is FetchState.PAUSED:
            reading.feed.fetches.leave(FetchState.PAUSED)
            reading.try_again_s = parts.sink.clock() + parts.interval_s
            pump_of(parts, reading.feed).advance(reading.feed)


def progress_of(place: RolePlace, reading: CopyFeedWatch) -> dict[str, Any]:
    """Return the progress of a generation, as the fields of a MomentNote."""
    moment = reading.moment()
    return {
        "topic": place.topic,
        "life": place.life,
        "partition": place.partition,
        "generation": reading.generation,
        "at_ms": None if moment is None else moment.at_ms,
        "last_stable": 0 if moment is None else moment.last_stable,
    }
