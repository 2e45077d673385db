"""Ways to damage bytes that hold varints, lengths and counts."""

import random

from tests.support.reference_batch import varint

NUMBERS = (0, 1, -1, 2, 63, 64, -64, 127, 1000, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63), 2**63 - 50)
_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)


def mutate(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        _MUTATIONS[rng.randrange(len(_MUTATIONS))](rng, changed, at)
    return bytes(changed)


def _flip(rng: random.Random, content: bytearray, at: int) -> None:
    content[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in content[at : at + 1])


def _set(rng: random.Random, content: bytearray, at: int) -> None:
    content[at : at + 1] = bytes([rng.choice(_BYTES)])


def _put_number(rng: random.Random, content: bytearray, at: int) -> None:
    """In place of one byte, which often was a length, a count or a branch."""
    number = rng.choice(NUMBERS) if rng.random() < 0.7 else len(content) - at + rng.randint(-3, 3)
    content[at : at + 1] = varint(number, rng.choice((0, 0, 0, 3)))


def _delete(rng: random.Random, content: bytearray, at: int) -> None:
    del content[at : at + rng.choice((1, 1, 3, 40))]


def _repeat(rng: random.Random, content: bytearray, at: int) -> None:
    content[at:at] = content[at : at + rng.choice((1, 4, 60))]


def _scribble(rng: random.Random, content: bytearray, at: int) -> None:
    content[at : at + 8] = rng.randbytes(rng.choice((1, 8)))


def _cut(rng: random.Random, content: bytearray, at: int) -> None:
    if rng.random() < 0.3:
        del content[at:]


_MUTATIONS = (_flip, _flip, _set, _put_number, _put_number, _put_number, _delete, _repeat, _scribble, _cut)
