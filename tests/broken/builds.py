"""The rows of docs/proofs.md under "Broken builds" and "Deliberately broken copies", as changes, and the tests that fail then.

The lowest test that sees a change stands here. Who deletes or replaces a test runs `make test-broken` before and after.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.support.chaos.broken import Change


class Build(NamedTuple):
    """Changes of the program, and tests each of which fails with them."""

    changes: tuple[Change, ...]
    tests: tuple[str, ...]


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
                "archive/index.py",
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
                "backup/partition_writer.py",
                "facts = closed.facts if etag is not None else self._winner(closed)",
                "facts = closed.facts",
            ),
        ),
        ("tests/faults/test_writers.py::test_any_order_of_steps_keeps_every_offset_once",),
    ),
    "a writer that does not look at the archive after a silence": Build(
        (
            Change(
                "backup/partition_writer.py",
                "        if silences == self._silences:\n            return None\n",
                "        if silences >= self._silences:\n            return None\n",
            ),
        ),
        ("tests/faults/test_writers.py::test_nothing_is_put_under_a_swept_key_after_a_silence",),
    ),
    "another cluster is let in": Build(
        (
            Change("archive/topics.py", 'held.get("cluster_id") != cluster_id:', "not cluster_id:"),
            Change("archive/topics.py", "known.cluster_id != cluster_id:", "not cluster_id:"),
        ),
        (
            "tests/unit/archive/test_control.py::test_another_cluster_is_refused",
            "tests/unit/archive/test_control.py::test_a_prefix_belongs_to_one_cluster",
        ),
    ),
    "branches are ignored": Build(
        (Change("groups/translation.py", "is_other & (sources > fork.offset)", "is_other & (sources < 0)"),),
        ("tests/unit/groups/test_translation.py::test_several_branches_one_after_the_other",),
    ),
    "timestamp type not reset": Build(
        (
            Change(
                "restore/partition_restore.py",
                "frame.table[Column.TIMESTAMP_TYPE] = CREATE_TIME",
                "assert CREATE_TIME == 0",
            ),
        ),
        ("tests/integration/test_fidelity.py::test_everything_comes_back",),
    ),
    "a sweep that deletes the claims of a restore with all else": Build(
        (
            Change(
                "upkeep/retention/debris_sweep.py",
                "if target == APPLICATIONS or is_claim(name):",
                "if target == APPLICATIONS and is_claim(name):",
            ),
        ),
        ("tests/unit/upkeep/retention/test_debris.py::test_claims_go_first_and_plan_and_finished_last",),
    ),
    "a sweep that deletes the lowest number first": Build(
        (
            Change(
                "upkeep/retention/debris_sweep.py",
                "key=lambda item: item.key, reverse=True)",
                "key=lambda item: item.key, reverse=False)",
            ),
        ),
        ("tests/unit/upkeep/retention/test_debris.py::test_a_rerun_after_a_kill_ends_in_the_same_state",),
    ),
    "a target that has grown without a claim is appended to": Build(
        (Change("restore/target_shape.py", "and end > planned.get(number, 0):", "and end < 0:"),),
        ("tests/unit/restore/test_target_shape.py::test_a_partition_that_has_grown_without_a_claim_is_a_problem",),
    ),
    "a note that is written without the members of later versions": Build(
        (
            Change(
                "archive/note_stream.py",
                "for name, one in (before or {}).items() if name not in self.model.names",
                "for name, one in (before or {}).items() if name in self.model.names",
            ),
        ),
        ("tests/unit/archive/test_note_stream.py::test_update_keeps_members_that_the_model_does_not_know",),
    ),
}
