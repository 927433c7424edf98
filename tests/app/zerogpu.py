"""Replaces the `spaces` package on ZeroGPU: forked workers, pickled arguments and yields.

As the real one (0.51), `GPU` turns a generator function into one whose body runs in a forked
process: arguments go in and values come back through pickling queues, a value that does not pickle
is an error, a closed generator ends the worker's at its next value, errors cross as `gr.Error`, and
a worker is kept for the next call. The parent never runs the body.
"""

import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

CONTEXT: Any = multiprocessing.get_context("fork")
END, FAILED, VALUE = "end", "failed", "value"


class Worker:
    """A forked process that runs one generator function, call after call."""

    def __init__(self, task: Callable[..., Iterator[Any]]) -> None:
        self.calls, self.values = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()
        self.stop = CONTEXT.Event()
        self.process = CONTEXT.Process(target=self._work, args=(task,), daemon=True)
        self.process.start()

    def _work(self, task: Callable[..., Iterator[Any]]) -> None:
        while True:
            arguments = pickle.loads(self.calls.get())
            self.stop.clear()
            running = task(*arguments)
            try:
                for value in running:
                    if self.stop.is_set():
                        running.close()  # type: ignore[attr-defined]
                        break
                    self.values.put((VALUE, pickle.dumps(value)))
            except Exception as error:
                self.values.put((FAILED, type(error).__name__))
            self.values.put((END, None))


class Spaces:
    """What `import spaces` gives. seconds: each call's requested duration; refuse: the message with
    which the next calls get no GPU."""

    def __init__(self) -> None:
        self.seconds: list[int] = []
        self.workers: list[Worker] = []
        self.refuse = ""

    def GPU(self, *, duration: Callable[..., int]) -> Callable[[Callable], Callable]:  # noqa: N802
        """The decorator."""

        def decorate(task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            assert inspect.isgeneratorfunction(task), "the real one would run it as a function"

            def call(*arguments: Any) -> Iterator[Any]:
                self.seconds.append(duration(*arguments))
                if self.refuse:
                    raise gr.Error(self.refuse, print_exception=False)
                worker = self._worker(task)
                worker.calls.put(pickle.dumps(arguments))
                yield from self._values(worker)

            return call

        return decorate

    def _worker(self, task: Callable[..., Iterator[Any]]) -> Worker:
        alive = [worker for worker in self.workers if worker.process.is_alive()]
        if not alive:
            alive = [Worker(task)]
            self.workers.append(alive[0])
        return alive[0]

    def _values(self, worker: Worker) -> Iterator[Any]:
        ended = False
        try:
            while True:
                kind, value = self._next(worker)
                ended = kind == END
                if ended:
                    return
                if kind == FAILED:
                    raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
                yield pickle.loads(value)
        finally:
            worker.stop.set()
            while not ended and worker.process.is_alive():
                ended = self._next(worker)[0] == END

    def _next(self, worker: Worker) -> tuple[str, Any]:
        while not worker.values._reader.poll(0.05):
            if not worker.process.is_alive():
                raise gr.Error("GPU task aborted", print_exception=False)
        return worker.values.get()

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
