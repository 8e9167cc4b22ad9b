"""Dynamic batching: a queue of requests, from which one thread takes batches."""

import collections
import threading
import time


class Batcher:
    """Collects requests into batches of at most max_batch.

    A batch is taken once it is full or its oldest request has waited max_delay seconds; without a delay it is whatever
    came while the batch before ran. submit may be called by any thread, take by one.
    """

    def __init__(self, max_batch, max_delay):
        if max_batch < 1 or max_delay < 0:
            raise ValueError(f"max_batch {max_batch}, max_delay {max_delay}: at least 1 and 0 wanted")
        self.max_batch, self.max_delay = max_batch, max_delay
        self._waiting = collections.deque()  # of (when it came, request)
        self._changed = threading.Condition()
        self._closed = False

    def submit(self, request):
        """Add a request."""
        with self._changed:
            self._waiting.append((time.monotonic(), request))
            if len(self._waiting) == 1 or len(self._waiting) >= self.max_batch:
                self._changed.notify()

    def close(self):
        """Let take return None once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self):
        """Wait for a batch, in the order in which its requests came."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            while len(self._waiting) < self.max_batch and not self._closed:
                left = self._waiting[0][0] + self.max_delay - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return [self._waiting.popleft()[1] for _ in range(min(len(self._waiting), self.max_batch))]
