"""Tests of dynamic batching."""

import threading
import unittest

from batcher import Batcher


class Batches(unittest.TestCase):
    def test_what_waits_is_one_batch(self):
        b = Batcher(max_batch=8, max_delay=0)
        for i in range(5):
            b.submit(i)
        self.assertEqual(b.take(), [0, 1, 2, 3, 4])

    def test_no_batch_is_larger_than_allowed(self):
        b = Batcher(max_batch=2, max_delay=100)
        for i in range(5):
            b.submit(i)
        b.close()
        self.assertEqual([b.take() for _ in range(4)], [[0, 1], [2, 3], [4], None])

    def test_a_full_batch_does_not_wait(self):
        b = Batcher(max_batch=2, max_delay=1000)
        taken = []
        thread = threading.Thread(target=lambda: taken.append(b.take()))
        thread.start()
        b.submit(1)
        b.submit(2)
        thread.join(20)
        self.assertEqual(taken, [[1, 2]])

    def test_a_batch_goes_when_its_oldest_has_waited(self):
        b = Batcher(max_batch=2, max_delay=0.01)
        b.submit(1)
        self.assertEqual(b.take(), [1])

    def test_closing_ends_a_wait(self):
        b = Batcher(max_batch=2, max_delay=1000)
        taken = []
        thread = threading.Thread(target=lambda: taken.append(b.take()))
        thread.start()
        b.close()
        thread.join(20)
        self.assertEqual(taken, [None])

    def test_bounds(self):
        for batch, delay in (0, 0), (1, -1):
            with self.assertRaises(ValueError):
                Batcher(batch, delay)


if __name__ == "__main__":
    unittest.main()
