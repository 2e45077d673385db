from archiver.process.running.backoff import Backoff


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next_s() == 1.0
