import pytest

from greenfast.search.targets.cuda.in_threads import Threads


@pytest.mark.parametrize("count", [0, 1, 3, 4, 51])
def test_results_come_in_the_order_of_the_items(count):
    results = Threads().start(lambda item: item * item, range(count))
    assert results() == [item * item for item in range(count)]


def test_an_error_of_one_item_is_raised_by_the_result():
    results = Threads().start(lambda item: 1 // item, [1, 2, 0, 3])
    with pytest.raises(ZeroDivisionError):
        results()
