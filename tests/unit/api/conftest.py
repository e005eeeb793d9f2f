"""Apps without a socket."""

from collections.abc import Callable, Iterator

import pytest
from tests.unit.api.wire import HeldApp

from topics.config import ServerConfig

MakeApp = Callable[..., HeldApp]


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    """Make apps whose answers the test gives; `hold=False`: real ones."""
    made: list[HeldApp] = []

    def make(*, keys: str = "", hold: bool = True, **settings: object) -> HeldApp:
        app = HeldApp(ServerConfig(**settings), keys=keys, hold=hold)  # type: ignore[arg-type] # any setting
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(make_app: MakeApp) -> HeldApp:
    return make_app()
