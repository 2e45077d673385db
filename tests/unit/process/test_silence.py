from archiver.process.running.silence import SilenceCounter


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_silence_is_counted_once() -> None:
    clock = Clock()
    silence_counter = SilenceCounter(10.0, clock)
    for _ in range(5):
        clock.now_s += 9.0
        silence_counter.beat()
    assert silence_counter.silences == 0

    clock.now_s += 10.1
    assert silence_counter.silences == 1  # a writer wakes up before the beat
    silence_counter.beat()
    assert silence_counter.silences == 1

    clock.now_s += 60.0
    silence_counter.beat()  # the beat wakes up before the writer
    assert silence_counter.silences == 2


def test_beats_end_a_silence_that_was_not_one() -> None:
    clock = Clock()
    silence_counter = SilenceCounter(10.0, clock)
    clock.now_s += 6.0
    assert silence_counter.silences == 0
    clock.now_s += 6.0
    assert silence_counter.silences == 0  # a look is a sign of life, too
