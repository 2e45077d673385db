"""What is reserved never exceeds the budget, and whoever came first is served first."""

import asyncio

from archiver.process.running.budget import ByteBudget


def test_reservations_wait_in_line_for_what_is_free() -> None:
    budget = ByteBudget(100)
    order: list[int] = []

    async def ask(size: int) -> None:
        await budget.reserve(size)
        order.append(size)

    async def body() -> None:
        await ask(60)
        asked = [asyncio.create_task(ask(size)) for size in (50, 30, 20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (order, budget.is_short) == ([60], True)  # 30 would fit, and waits behind 50
        budget.free(60)
        await asyncio.gather(*asked)
        assert (order, budget.is_short) == ([60, 50, 30, 20], False)

    asyncio.run(body())


def test_what_is_larger_than_the_budget_is_alone() -> None:
    budget = ByteBudget(100)

    async def body() -> None:
        await budget.reserve(10)
        large = asyncio.create_task(budget.reserve(500))
        await asyncio.sleep(0)
        assert not large.done()
        budget.free(10)
        await large
        small = asyncio.create_task(budget.reserve(1))
        await asyncio.sleep(0)
        assert not small.done()
        budget.free(500)
        await small

    asyncio.run(body())


def test_a_cancelled_reservation_takes_no_bytes() -> None:
    budget = ByteBudget(100)

    async def body() -> None:
        await budget.reserve(100)
        impatient, patient = (asyncio.create_task(budget.reserve(size)) for size in (70, 80))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.sleep(0)
        budget.free(100)
        await patient
        budget.free(80)
        await budget.reserve(100)

    asyncio.run(asyncio.wait_for(body(), 5))


def test_what_has_come_counts_without_being_asked() -> None:
    budget = ByteBudget(100)

    async def body() -> None:
        budget.add(90)
        waiting = asyncio.create_task(budget.reserve(20))
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.free(10)
        await waiting

    asyncio.run(body())
