"""Admission: the order of requests, and their memory."""

from rotatek.engine.admission import Admission


def test_places_move_up_first_come_first_served() -> None:
    admission = Admission(lambda: 100)
    leases = [admission.ask(size) for size in (60, 30, 50, 5)]
    assert [lease.admitted for lease in leases] == [True, True, False, False]
    assert [lease.place for lease in leases] == [0, 0, 1, 2]  # the small one does not jump
    leases[0].resize(40)
    assert not leases[2].admitted
    leases[1].release()
    assert leases[2].admitted and leases[3].admitted and admission.held == 95
    leases[2].release()
    leases[2].release()
    assert admission.held == 45


def test_what_the_batch_pads_counts_and_its_spare_places_are_there_to_be_taken() -> None:
    batched = 0
    admission = Admission(lambda: 100, lambda: batched)
    first, rests = admission.ask(30), admission.ask(10)
    rests.rest(10)
    batched = 85
    second = admission.ask(20)  # goes where there is room already
    assert second.admitted and admission.held == 95
    batched = 91
    third = admission.ask(1)
    assert not third.admitted and admission.held == 101
    batched = 60
    first.release()
    assert third.admitted
