"""One site for all tests that ask Prometheus: a server with graphs off is replayed, then the same model with graphs on."""

import time
from collections.abc import Iterator

import pytest

from .site import FIRST_RUN, SECOND_RUN, Site, site, wait_for
from .test_e2e import CAUSE, Story


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The incident from its first line to its end, with what was heard of it."""
    with site(tmp_path_factory.mktemp("site")) as here:
        here.replay(FIRST_RUN)
        paged = wait_for(lambda: here.duty.heard("ticket", "firing", **CAUSE), 30.0, "no ticket came")
        held_back = wait_for(here.held_back, 20.0, "nothing is inhibited")
        finding = next(each for each in here.daemon.all("findings") if each["topic"] == CAUSE["topic"])
        here.replay(SECOND_RUN)
        resolved = wait_for(lambda: here.duty.heard("ticket", "resolved", **CAUSE), 40.0, "the ticket was not closed")
        yield Story(here, time.time(), finding, paged, held_back, resolved)


@pytest.fixture
def replayed(story: Story) -> Site:
    return story.site
