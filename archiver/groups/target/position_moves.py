"""Moves positions of one group, each only from its expected value; then reads them back. Used to set positions on a target, and to roll them back."""

from collections.abc import Collection, Iterable, Sequence

from archiver.errors import ArchiverError, KafkaError, TemporaryError
from archiver.groups.target.application_decisions import Decision, PositionOutcome, TopicIds, is_same, moved_places
from archiver.groups.target.application_notes import GroupNote
from archiver.kafka.brokers.client import KafkaClient
from archiver.kafka.groups.group_commits import GroupActiveError, commit_positions, delete_positions
from archiver.kafka.groups.group_coordinators import settled_positions
from archiver.kafka.groups.group_positions import GroupPosition, list_groups
from archiver.process.running.failpoints import reach


async def make_moves(
    client: KafkaClient, note: GroupNote, decisions: Sequence[Decision]
) -> tuple[list[Decision], ArchiverError | None]:
    """Move the unchanged positions, unless the group has moved anywhere since it was noted.

    Returns the decisions with the positions and outcomes that were read back: the broker's answer may be lost. Also returns why
    positions were not set, if no outcome says it. A request whose answer is lost is repeated only for unchanged positions:
    otherwise a consumer that was started meanwhile, and has run on, would be put back.
    """
    moves = [one for one in decisions if one.outcome is PositionOutcome.SET]
    failed, error = PositionOutcome.NOT_SET, None
    try:
        if await client.persist(lambda: _move_once(client, note, moves)):
            failed = PositionOutcome.GROUP_MOVED
    except GroupActiveError:
        failed = PositionOutcome.HAS_MEMBERS
    except (KafkaError, TemporaryError) as failure:
        error = failure
    after = await settled_positions(client, note.group)
    reach("positions.read")
    found = [_read_back(one, after.get(one.place), failed) for one in decisions]
    return found, error if any(one.outcome is PositionOutcome.NOT_SET for one in found) else None


def _read_back(decision: Decision, now: GroupPosition | None, failed: PositionOutcome) -> Decision:
    outcome = decision.outcome
    if outcome is PositionOutcome.SET and not is_same(now, decision.wanted):
        outcome = failed if is_same(now, decision.before) else PositionOutcome.MOVED
    return decision._replace(outcome=outcome, after=now)


async def _move_once(client: KafkaClient, note: GroupNote, moves: Iterable[Decision]) -> bool:
    """Send one request to move. Returns whether the group was left unchanged because it has moved."""
    group, live = note.group, await live_topics(client, note.topics.keys())
    stands = await settled_positions(client, group)
    if moved_places(note, stands, live):
        return True
    due = [one for one in moves if live.get(one.topic) == one.topic_id and is_same(stands.get(one.place), one.before)]
    to_set = {one.place: one.wanted for one in due if one.wanted is not None}
    if to_set:
        await commit_positions(client, group, to_set)
        reach("positions.answered")
    to_delete = [one.place for one in due if one.wanted is None]
    if to_delete:
        await _refuse_members(client, group)
        await delete_positions(client, group, to_delete)
        reach("deletion.answered")
    return False


async def _refuse_members(client: KafkaClient, group: str) -> None:
    """Refuse a group with members: brokers would delete its positions if the members read other topics."""
    listed = (await list_groups(client)).get(group)
    if listed is not None and listed.has_members:
        raise GroupActiveError(f"group {group} has members, so none of its positions was deleted")


async def live_topics(client: KafkaClient, names: Collection[str]) -> TopicIds:
    """Return the ids of the existing topics. Raises refusals."""
    described = await client.persist(lambda: client.describe_topics(names)) if names else {}
    return {name: one.topic_id for name, one in described.items()}
