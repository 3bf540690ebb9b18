"""The workers of the settings as a source: complete sets, the first at once."""

import asyncio

from router.discovery.static import StaticSource
from tests.support.fleets import worker


async def test_the_first_set_comes_at_once_and_whole() -> None:
    source = StaticSource(iter([worker("a"), worker("b")]))
    assert await asyncio.wait_for(anext(source.watch()), 5) == (worker("a"), worker("b"))


async def test_no_workers_are_a_set_too() -> None:
    assert await asyncio.wait_for(anext(StaticSource(()).watch()), 5) == ()


async def test_nothing_more_comes_until_the_set_is_replaced() -> None:
    source = StaticSource([worker("a")])
    sets = source.watch()
    await anext(sets)
    following = asyncio.ensure_future(anext(sets))
    await asyncio.sleep(0)
    assert not following.done()
    source.replace([worker("b")])
    assert await asyncio.wait_for(following, 5) == (worker("b"),)


async def test_of_several_replacements_the_last_counts() -> None:
    source = StaticSource([worker("a")])
    source.replace([worker("b")])
    source.replace(())
    assert await asyncio.wait_for(anext(source.watch()), 5) == ()
