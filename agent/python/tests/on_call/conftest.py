"""The scenario with real servers: played once, whichever test asks first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import alert_servers, on_call


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[on_call.Scenario]:
    """What came of it. Of the module: its trainings would take the processors from all tests that come after."""
    if missing := alert_servers.missing():
        pytest.skip(f"no {' and no '.join(missing)} on PATH (Debian: prometheus prometheus-alertmanager)")
    directory = tmp_path_factory.mktemp("on_call")
    servers = alert_servers.Servers(directory)
    jobs = on_call.Jobs(directory)
    try:
        yield on_call.play(on_call.Scenario(servers), jobs, directory)
    finally:
        jobs.close()
        servers.close()
