"""What a visitor has is freed some time after the page was heard of last, and not before."""

import time

from rotatek.page.build import Presence


def test_a_lost_connection_frees_nothing_while_the_page_is_open() -> None:
    freed: list[str] = []
    presence = Presence(freed.append, grace_s=1.0)
    for session in ("open", "closed"):
        presence.here(session)
        presence.lost(session)
    presence.lost("closed")  # twice, as where two requests are cut
    deadline = time.monotonic() + 60
    while not freed and time.monotonic() < deadline:
        time.sleep(0.02)
        presence.here("open")
    assert freed == ["closed"]
    while len(freed) == 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert freed == ["closed", "open"]
