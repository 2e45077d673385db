"""Kafka's hash of keys once more, as plainly as it can be said, to compare with."""

_LOW_32 = 0xFFFF_FFFF
_FACTOR = 0x5BD1E995


def murmur2(key: bytes) -> int:
    state = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _FACTOR & _LOW_32
        word = (word ^ word >> 24) * _FACTOR & _LOW_32
        state = state * _FACTOR & _LOW_32 ^ word
    if key[whole:]:
        state = (state ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _LOW_32
    state = (state ^ state >> 13) * _FACTOR & _LOW_32
    return state ^ state >> 15
