"""Defects as changes of the program, and the tests that fail with each (docs/proofs.md, "Broken builds").

The lowest test that sees a change stands here. Run `make test-broken` before and after a test is deleted or replaced.
Other tests break rules of their own models and fail unless that is found: of sweeps (tests/unit/upkeep/retention/test_partition_verdict.py),
of turns (tests/unit/backup/compacted/test_every_turn.py), of positions (tests/unit/groups/test_positions.py).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.support.chaos.broken import Change


class Build(NamedTuple):
    """Changes of the program, and tests each of which fails with them."""

    changes: tuple[Change, ...]
    tests: tuple[str, ...]


FEED_STATES: Final = (
    "tests/unit/backup/test_feed_states.py::test_a_feed_ends_only_with_nothing_held_or_dropped_or_with_a_reported_error"
)

BUILDS: Final[Mapping[str, Build]] = {
    "CRC of batches unchecked": Build(
        (Change("codec/batch.py", "        if actual != crc:\n", "        if actual != crc and base < 0:\n"),),
        ("tests/unit/codec/test_batch_broken.py::test_every_flipped_bit_is_noticed",),
    ),
    "aborted records kept": Build(
        (Change("codec/batch.py", "    if not aborted:\n", "    if aborted is not None:\n"),),
        ("tests/unit/codec/test_batch.py::test_markers_and_aborted_records_are_counted_where_they_lie",),
    ),
    "an index that is believed without size and ETag": Build(
        (
            Change(
                "archive/index/loaded_index.py",
                "is_good = is_same & entries.has_facts(rows) & ~objects.etag.are_empty()",
                "is_good = (is_same | ~is_same) & entries.has_facts(rows)",
            ),
        ),
        ("tests/unit/archive/test_index.py::test_an_entry_of_another_object_is_not_believed",),
    ),
    "a comparison by count and digest alone, without offsets": Build(
        (
            Change(
                "upkeep/comparison.py",
                "return is_dense and (found.records, found.first, found.last, found.digest) == ours",
                "return is_dense or (found.records, found.digest) == (ours[0], ours[3])",
            ),
        ),
        ("tests/integration/upkeep/test_verify.py::test_a_record_at_another_offset_is_found",),
    ),
    "overwrite instead of put-if-absent": Build(
        (Change("store/s3.py", ', IfNoneMatch="*"', ""),),
        (
            "tests/contract/test_store_contract.py::test_creates_once_and_then_leaves_what_is_there",
            "tests/contract/test_store_contract.py::test_of_writers_at_once_exactly_one_creates",
        ),
    ),
    "a writer that does not follow the winner of a put": Build(
        (
            Change(
                "backup/partition/partition_writer.py",
                "facts = closed.facts if etag is not None else self._winner(closed)",
                "facts = closed.facts",
            ),
        ),
        ("tests/faults/test_writers.py::test_any_order_of_steps_keeps_every_offset_once",),
    ),
    "a writer that does not look at the archive after a silence": Build(
        (
            Change(
                "backup/partition/partition_writer.py",
                "        if silences == self._silences:\n            return None\n",
                "        if silences >= self._silences:\n            return None\n",
            ),
        ),
        ("tests/faults/test_writers.py::test_nothing_is_put_under_a_swept_key_after_a_silence",),
    ),
    "another cluster is let in": Build(
        (
            Change("archive/notes/topics.py", 'held.get("cluster_id") != cluster_id:', "not cluster_id:"),
            Change("archive/notes/topic_changes.py", "known.cluster_id != cluster_id:", "not cluster_id:"),
        ),
        (
            "tests/unit/archive/test_control.py::test_another_cluster_is_refused",
            "tests/unit/archive/test_control.py::test_a_prefix_belongs_to_one_cluster",
        ),
    ),
    "branches are ignored": Build(
        (Change("groups/target/translation.py", "is_other & (sources > fork.offset)", "is_other & (sources < 0)"),),
        ("tests/unit/groups/test_translation.py::test_several_branches_one_after_the_other",),
    ),
    "timestamp type not reset": Build(
        (
            Change(
                "restore/fill/partition_restore.py",
                "frame.table[Column.TIMESTAMP_TYPE] = CREATE_TIME",
                "assert CREATE_TIME == 0",
            ),
        ),
        ("tests/integration/test_fidelity.py::test_everything_comes_back",),
    ),
    "a sweep that deletes the claims of a restore with all else": Build(
        (
            Change(
                "upkeep/retention/sweeping/debris_sweep.py",
                "or is_claim(name):",
                "or not name:",
            ),
        ),
        ("tests/unit/upkeep/retention/test_debris.py::test_claims_go_first_and_plan_and_finished_last",),
    ),
    "a sweep that deletes the lowest number first": Build(
        (
            Change(
                "upkeep/retention/sweeping/debris_sweep.py",
                "key=lambda item: item.key, reverse=True)",
                "key=lambda item: item.key, reverse=False)",
            ),
        ),
        ("tests/unit/upkeep/retention/test_debris.py::test_a_rerun_after_a_kill_ends_in_the_same_state",),
    ),
    "a sweep that deletes the newest note of a group before earlier ones": Build(
        (
            Change(
                "upkeep/retention/sweeping/debris_sweep.py",
                "if phase is _Phase.CLAIMS:",
                "if phase is not None:",
            ),
        ),
        ("tests/unit/upkeep/retention/test_debris.py::test_a_half_gone_restore_with_earlier_notes_of_groups_goes",),
    ),
    "a target that has grown without a claim is appended to": Build(
        (Change("restore/targets/target_shape.py", "and end > planned.get(number, 0):", "and end < 0:"),),
        ("tests/unit/restore/test_target_shape.py::test_a_partition_that_has_grown_without_a_claim_is_a_problem",),
    ),
    "a note that is written without the members of later versions": Build(
        (
            Change(
                "archive/format/note_stream.py",
                "for name, one in (before or {}).items() if name not in self.model.names",
                "for name, one in (before or {}).items() if name in self.model.names",
            ),
        ),
        ("tests/unit/archive/test_note_stream.py::test_update_keeps_members_that_the_model_does_not_know",),
    ),
    "fetch answers paired by position instead of by partition": Build(
        (
            Change(
                "kafka/records/fetch.py",
                "[by_partition[target.topic, target.partition] for target in targets]",
                "answers",
            ),
        ),
        ("tests/unit/kafka/test_wire.py::test_answers_are_paired_with_their_partitions",),
    ),
    "the aborted list is not carried between parts of a fetch": Build(
        (
            Change(
                "codec/batch.py",
                "aborted=tuple(entry for entry in aborted if not _has_ended(batches, *entry)),",
                "aborted=(),",
            ),
        ),
        ("tests/unit/codec/test_batch.py::test_aborted_records_never_come_out",),
    ),
    "the error of a broken batch keeps its frames": Build(
        (Change("backup/partition/fetched_batches.py", "return type(error)(str(error))", "return error"),),
        ("tests/faults/test_writers.py::test_a_fault_keeps_no_frame_of_its_batch",),
    ),
    "commit before put": Build(
        (
            Change(
                "backup/partition/partition_writer.py",
                "return self._base if self.holds_records else self.position\n",
                "return self.position\n",
            ),
        ),
        (
            (
                "tests/faults/test_writers.py"
                "::test_who_is_overtaken_never_tells_that_more_is_durable_than_lies_in_the_archive"
            ),
        ),
    ),
    "position from the commit alone": Build(
        (  # through `newest_base`, as a negative number: the way is there already
            Change(
                "backup/opening/opener.py",
                "base = None if hint is None else hint.base\n",
                "base = None if hint is None else -1 - hint.offset\n",
            ),
            Change(
                "backup/opening/opener.py",
                "        if listed is None:\n",
                "        if newest_base is not None:\n"
                "            return ArchivedEnd(next=-1 - newest_base)\n"
                "        if listed is None:\n",
            ),
        ),
        ("tests/unit/backup/test_opener.py::test_a_backup_continues_behind_an_object_that_joins_without_requests",),
    ),
    "recreated topics not noticed when topics are listed again": Build(
        (
            Change(
                "backup/opening/topic_recorder.py",
                "return topic.topic_id, topic.partitions, noted",
                "return topic.partitions, noted",
            ),
        ),
        ("tests/unit/backup/test_topic_recorder.py::test_a_policy_that_changes_at_the_brokers_is_news",),
    ),
    "the present topics not written down": Build(
        (
            Change(
                "backup/opening/start_offsets.py",
                "known = await self._pool.call(append_only_fact, archive, PRESENT, noted)",
                "known = noted",
            ),
        ),
        ("tests/unit/backup/test_start_offsets.py::test_the_first_start_holds_when_the_log_has_grown",),
    ),
    "a partition's late start not written down": Build(
        (
            Change(
                "backup/opening/start_offsets.py",
                "if noted is None and end is None:",
                "if noted is None and end == []:",
            ),
        ),
        ("tests/unit/backup/test_start_offsets.py::test_the_first_start_holds_when_the_log_has_lost_its_beginning",),
    ),
    "a partition ends though it holds records": Build(
        (Change("backup/partition/feed.py", "        if self.writer.holds_records:\n            return False\n", ""),),
        (FEED_STATES,),
    ),
    "records of a failed put are dropped silently": Build(
        (Change("backup/partition/feed.py", "        self.note_dropped()\n", ""),),
        (FEED_STATES,),
    ),
    "a partition that was lost while its segment was closed is put": Build(
        (Change("backup/partition/pump.py", "if feed.ending.state is not EndState.DROPPED:", "if feed is not None:"),),
        (FEED_STATES,),
    ),
    "epochs of a log are not asked": Build(
        (
            Change(
                "backup/partition/log_agreement.py",
                "return end.leader_epoch < feed.fetches.epoch or end.end_offset < feed.fetches.offset",
                "return end.end_offset < 0",
            ),
        ),
        ("tests/unit/backup/test_log_agreement.py::test_a_log_was_cut_where_the_epoch_is_missing_or_ends_below",),
    ),
    "a switch over a log that was cut back": Build(
        (
            Change(
                "backup/partition/log_agreement.py",
                "return end.end_offset < archived.next",
                "return end.end_offset < 0",
            ),
        ),
        (
            (
                "tests/unit/backup/test_log_agreement.py"
                "::test_a_log_that_was_cut_back_is_refused_and_a_cluster_that_does_not_tell_is_asked_for_a_while_only"
            ),
        ),
    ),
    "a candidate that stays though it can only be unsure": Build(
        (Change("backup/compacted/turn/turn_decisions.py", "return is_vain or is_given_up", "return is_given_up"),),
        (
            (
                "tests/unit/backup/compacted/test_turn.py"
                "::test_a_candidate_that_missed_tombstones_is_tried_again_and_no_more_than_once_a_turn"
            ),
        ),
    ),
    "what the index remembers behind a partition's end is ignored": Build(
        (Change("archive/index/inventory.py", "        if place not in unknown:\n", "        if place in unknown:\n"),),
        ("tests/unit/archive/test_index.py::test_a_lost_end_is_a_gap",),
    ),
    "`verify` reads the index again with the listing": Build(
        (
            Change(
                "upkeep/verify.py", "asks_all=index, report_progress", "asks_all=read_index(archive), report_progress"
            ),
        ),
        ("tests/unit/upkeep/test_verify.py::test_the_index_is_read_once_and_before_the_listing",),
    ),
    "a reader that goes away makes the exit code 0": Build(
        (
            Change(
                "cli/output.py",
                "        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())\n        return False\n",
                "        raise\n",
            ),
        ),
        ("tests/unit/cli/test_output.py::test_a_reader_that_goes_away_is_no_error",),
    ),
    "a restore takes another topic's plan under one --id": Build(
        (Change("restore/plan/plan_check.py", "if noted.source != source:", "if not noted.source:"),),
        ("tests/unit/restore/test_plan_check.py::test_a_plan_of_another_topic_is_refused",),
    ),
    "each attempt of a restore makes a claim of its own": Build(
        (
            Change(
                "restore/plan/claim_stream.py",
                "return None if is_of(latest, self._cluster_id, claim.target_topic_id) else ours",
                "return ours",
            ),
        ),
        ("tests/unit/restore/test_claims.py::test_the_first_claim_holds_until_the_topic_is_another_one",),
    ),
    "restore resumes from 0": Build(
        (
            Change(
                "restore/fill/partition_restore.py",
                "return await _send_from(already_there",
                "return await _send_from(0",
            ),
            # Each attempt fails alike: sixty of them take half a minute.
            Change(
                "restore/fill/partition_restore.py",
                "    is_ours = False\n    for _ in range(ATTEMPTS):\n",
                "    is_ours = False\n    for _ in range(ATTEMPTS // 20):\n",
            ),
        ),
        ("tests/integration/restore/test_restore.py::test_a_restore_goes_on_where_it_was_cut",),
    ),
    "read-back switched off": Build(
        (
            Change(
                "restore/fill/partition_restore.py",
                "if (found.records, found.digest) == (restored.records, restored.digest):",
                "if found.records >= 0:",
            ),
        ),
        ("tests/integration/restore/test_verified_claims.py::test_what_compaction_has_taken_is_no_loss",),
    ),
    "changes of configs are not waited for": Build(
        (
            Change(
                "kafka/topics/configs.py",
                "left[node] = await _still_unchanged(client, node, topics)",
                "left[node] = {}",
            ),
        ),
        ("tests/integration/kafka/test_kafka_admin.py::test_changes_of_configs_are_waited_for",),
    ),
    "a position is the record before a hole": Build(
        (
            Change(
                "archive/restores/offset_map.py",
                "ahead = np.maximum(offsets, here[run]) - here[run]",
                "ahead = np.maximum(offsets - 1, here[run]) - here[run]",
            ),
        ),
        ("tests/unit/archive/test_offset_map.py::test_every_offset_goes_where_its_record_went",),
    ),
    "a position at the tip is one too low": Build(
        (
            Change(
                "archive/restores/offset_map.py",
                "there[run] + np.minimum(ahead, there[following] - there[run])",
                "there[run] + np.minimum(ahead, there[following] - there[run] - 1)",
            ),
        ),
        (
            "tests/unit/groups/test_translation.py::test_at_the_tip_is_where_the_restore_ended_and_not_where_the_log_ends_now",
        ),
    ),
    "a position is not raised to the log start": Build(
        (Change("groups/target/translation.py", "offset=max(target, restored.log_start)", "offset=target"),),
        ("tests/unit/groups/test_translation.py::test_at_least_the_log_start_of_now",),
    ),
    "the time asked for is ignored": Build(
        (
            Change(
                "groups/log/position_rows.py",
                "(self.ms > self.rows.until_ms) | self.is_pending",
                "self.is_pending.copy()",
            ),
        ),
        ("tests/unit/groups/test_positions.py::test_times_that_do_not_rise_cut_by_time_and_decide_by_order",),
    ),
    "positions of another life are set": Build(
        (
            Change(
                "groups/target/translation.py",
                "if position.life >= 0 and position.life != root:\n        return Reason.ANOTHER_LIFE\n",
                "if position.life < -9:\n        return Reason.ANOTHER_LIFE\n",
            ),
        ),
        ("tests/unit/groups/test_translation.py::test_what_is_not_set",),
    ),
    "epochs of commits are not asked": Build(
        (
            Change(
                "groups/target/translation.py",
                "return self.child_epoch >= 0 and self.child_epoch > self.parent_epoch",
                "return self.child_epoch < -1",
            ),
        ),
        ("tests/unit/groups/test_translation.py::test_above_a_branch_when_the_child_was_restored",),
    ),
    "positions of a group with members are deleted": Build(
        (
            Change(
                "groups/target/position_moves.py",
                "if listed is not None and listed.has_members:",
                "if listed is False:",
            ),
        ),
        ("tests/unit/groups/test_application.py::test_positions_are_not_deleted_of_a_group_that_becomes_active",),
    ),
    "a group that ran on is put back": Build(
        (
            Change(
                "groups/target/application_decisions.py", "return now.offset >= goal.offset", "return now.offset < 0"
            ),
        ),
        ("tests/unit/groups/test_application.py::test_consumers_that_ran_on_are_not_put_back",),
    ),
    "positions are set in a topic that was created again": Build(
        (
            Change(
                "groups/target/application_decisions.py",
                "if live.get(wanted.topic) != wanted.topic_id:",
                "if wanted.topic not in live:",
            ),
        ),
        ("tests/unit/groups/test_application.py::test_a_topic_of_the_same_name_is_a_stranger",),
    ),
}
