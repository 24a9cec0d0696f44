"""People who write, follow and unfollow one another, and delete what they regret."""

from __future__ import annotations

from datetime import datetime

from headwater.demo.world.happening import Happening, Rows
from headwater.demo.world.names import CITIES, PEOPLE

FOLLOWED = 4
TEXTS = (
    "Good morning from {city}!",
    "Anybody in {city} tonight?",
    "The coffee in {city} is better than I thought.",
    "Missed my train to {city}. Again.",
    "{city} in the rain is still {city}.",
)


class Friends:
    per_second = 2.0

    def __init__(self, happening: Happening) -> None:
        self._happening = happening
        self._follows: list[tuple[str, str]] = []
        self._tweets: list[int] = []

    def begin(self, _: datetime) -> Rows:
        for reader in PEOPLE:
            others = [name for name in PEOPLE if name != reader]
            self._follows += [(reader, author) for author in self._happening.chance.sample(others, FOLLOWED)]
        return {"follows": [{"reader": reader, "author": author} for reader, author in self._follows]}

    def happens(self, at: datetime) -> None:
        world = self._happening
        tweet, author = world.number(), world.one_of(PEOPLE)
        text = world.one_of(TEXTS).format(city=world.one_of(CITIES))
        world.comes("tweets", {"tweet": tweet, "author": author, "text": text, "at": at}, at=at)
        self._tweets.append(tweet)
        if world.is_so(0.15):
            self._change_mind(at)
        if world.is_so(0.05):
            regretted = self._tweets.pop(world.chance.randrange(len(self._tweets)))
            world.comes("tweets", {"tweet": regretted, "_tombstone": True}, at=at)

    def _change_mind(self, at: datetime) -> None:
        """Somebody unfollows one person, and follows another."""
        world = self._happening
        reader, author = self._follows.pop(world.chance.randrange(len(self._follows)))
        world.comes("follows", {"reader": reader, "author": author, "_tombstone": True}, at=at)
        known = {one for each, one in self._follows if each == reader}
        chosen = world.one_of([name for name in PEOPLE if name != reader and name not in known])
        self._follows.append((reader, chosen))
        world.comes("follows", {"reader": reader, "author": chosen}, at=at)
