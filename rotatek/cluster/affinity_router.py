"""Which replica answers: the one that holds the cache, else the less busy of two."""

import random

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica


class HomeRouter(RequestRouter):
    """Routes a request whose session is a replica's id to that replica, if it is alive and free.

    Not first in, first out over all requests: the replica that was found for one would then be
    given to another.
    """

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas, the preferred first.

        Args:
            candidate_replicas: the running ones.
            pending_request: the request to route.
        """
        home = "" if pending_request is None else pending_request.metadata.session_id
        kept = [one for one in candidate_replicas if one.replica_id.unique_id == home]
        others = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        return [rank for rank in (kept, others) if rank]
