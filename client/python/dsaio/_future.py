"""Futures of ops, and what waits by them: dsaio.wait(), and `await op` in an event loop.

Imported by the first of them.
"""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import ALL_COMPLETED as ALL_COMPLETED
from concurrent.futures import FIRST_COMPLETED as FIRST_COMPLETED
from concurrent.futures import FIRST_EXCEPTION as FIRST_EXCEPTION
from concurrent.futures import Future

from . import _check as check

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Iterable, Optional, Set, Tuple

    from ._op import Op

_RETURN_WHEN = (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION)


class OpFuture(Future[int]):
    """The future of Op.future().  It runs until the op has ended."""

    def __init__(self, op: Op) -> None:
        super().__init__()
        self._op: Optional[Op] = op  # while it is open
        self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """Asks that the op ends soon, as Op.cancel() does.  Returns False, as for each call that is running.

        The future is done when the op has ended, and has the op's result or error then: ECANCELED if the
        request was in time.  Until then the op uses its buffer.
        """
        op = self._op
        if op is not None:
            op.cancel()
        return False

    def end(self, result: int, error: Optional[BaseException]) -> None:
        """The op has ended."""
        self._op = None
        try:
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)
        except concurrent.futures.InvalidStateError:  # the program has set one
            pass

    def forget(self, error: OSError) -> None:
        """In a child of fork(): the op is the parent's."""
        super().__init__()  # a thread of the parent may hold its lock
        self.end(0, error)


def wait(
    ops: Iterable[Op], timeout: Optional[float] = None, return_when: str = ALL_COMPLETED
) -> Tuple[Set[Op], Set[Op]]:
    """Waits for ops of any handles, as concurrent.futures.wait() does for futures.  Returns (done, not_done).

    timeout: in seconds; None: forever.  return_when: ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION, which returns
    when an op has failed, and else when all have ended.  No op's error is raised: its wait() does that.
    Ops that are not done go on.
    """
    ops = set(ops)
    for op in ops:
        if not hasattr(op, "future"):
            raise check.wrong_type("op", op, "a dsaio.Op, as the submit_ methods of a dsaio.Handle return it")
    if return_when not in _RETURN_WHEN:
        raise ValueError(f"dsaio: return_when {return_when!r}: must be one of {', '.join(_RETURN_WHEN)}")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout < 0):
        check.usec("timeout", timeout)
    futures = {op.future(): op for op in ops}
    done = {futures[future] for future in concurrent.futures.wait(futures, timeout, return_when).done}
    return done, ops - done


async def ended(op: Op) -> None:
    """Returns when the op has ended.  The cancellation of the awaiting task does not touch the op."""
    from asyncio import get_running_loop

    loop = get_running_loop()
    waiter = loop.create_future()

    def wake(_: Future[int]) -> None:
        try:
            loop.call_soon_threadsafe(_set, waiter)
        except RuntimeError:  # that loop is closed
            pass

    op.future().add_done_callback(wake)
    await waiter


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
