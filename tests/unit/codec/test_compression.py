"""How Avro blocks are compressed, judged by zstd's own decoder and its own level 1."""

import json
import random

import numpy as np
import pytest
import zstandard

from archiver.codec.compression import BlockCodec, compress_block
from archiver.codec.frame import Bytes

KIB = 1024


def block_of(size: int, seed: int = 7) -> Bytes:
    """JSON with random parts, as topics have it."""
    source = random.Random(seed)
    values = [
        {"id": source.randrange(10**9), "state": source.choice(["new", "paid", "sent"])} for _ in range(size // 25)
    ]
    return np.frombuffer(json.dumps(values)[:size].encode(), np.uint8)


@pytest.mark.parametrize("size", [0, 1, 10 * KIB, 256 * KIB, 256 * KIB + 1, 512 * KIB, 3 * 1024 * KIB])
@pytest.mark.parametrize("level", [1, 3])
def test_blocks_are_ordinary_frames_that_tell_their_size(size: int, level: int) -> None:
    block = block_of(size)
    packed = compress_block(BlockCodec.ZSTANDARD, block, level)
    assert zstandard.get_frame_parameters(packed).content_size == size
    assert zstandard.ZstdDecompressor().decompress(packed) == block.tobytes()


def test_large_blocks_of_level_1_look_back_less_far_for_hardly_more_bytes() -> None:
    block = block_of(512 * KIB)
    packed = compress_block(BlockCodec.ZSTANDARD, block, 1)
    plain = zstandard.ZstdCompressor(level=1).compress(block.data)
    assert zstandard.get_frame_parameters(plain).window_size == 512 * KIB
    assert zstandard.get_frame_parameters(packed).window_size == 256 * KIB
    assert len(packed) < 1.01 * len(plain)


@pytest.mark.parametrize("level", [1, 2, 3, 19])
def test_other_blocks_are_compressed_as_zstd_proposes(level: int) -> None:
    block = block_of(256 * KIB if level == 1 else 512 * KIB)
    assert compress_block(BlockCodec.ZSTANDARD, block, level) == zstandard.ZstdCompressor(level=level).compress(
        block.data
    )
