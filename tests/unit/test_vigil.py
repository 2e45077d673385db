from archiver.process.silence import Vigil


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_silence_is_counted_once_by_whoever_looks_first() -> None:
    clock = Clock()
    vigil = Vigil(10.0, clock)
    for _ in range(5):
        clock.now_s += 9.0
        vigil.beat()
    assert vigil.silences == 0

    clock.now_s += 10.1
    assert vigil.silences == 1  # a writer wakes up before the beat
    vigil.beat()
    assert vigil.silences == 1

    clock.now_s += 60.0
    vigil.beat()  # the beat wakes up before the writer
    assert vigil.silences == 2


def test_beats_end_a_silence_that_was_not_one() -> None:
    clock = Clock()
    vigil = Vigil(10.0, clock)
    clock.now_s += 6.0
    assert vigil.silences == 0
    clock.now_s += 6.0
    assert vigil.silences == 0  # a look is a sign of life, too
