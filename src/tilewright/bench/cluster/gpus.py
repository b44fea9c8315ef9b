"""Ask a node which GPU a cluster has: the machine that plans a sweep need not have one."""

from __future__ import annotations

from tilewright.base.errors import ClusterError
from tilewright.bench.cluster.actor import DeviceActor, Hello
from tilewright.bench.cluster.seats import GPU, seats_of
from tilewright.bench.cluster.session import Session, ray_module
from tilewright.bench.executor import Crew


def gpu_of_cluster(address: str) -> Hello:
    """The description of the cluster's first GPU. The others are compared with it when they are used."""
    ray = ray_module()
    session = Session(address)
    try:
        nodes = session.nodes()
        seats = sorted(seats_of(nodes.values(), [GPU], builds=False))
        if not seats:
            raise ClusterError(
                f"none of the cluster's {len(nodes)} nodes has a GPU that Ray knows of. Start nodes with `ray start "
                "--num-gpus N`, or name another device"
            )
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  (part of an extra)

        actor = (
            ray.remote(DeviceActor)
            .options(num_gpus=1, scheduling_strategy=NodeAffinitySchedulingStrategy(seats[0].node, soft=False))
            .remote(GPU, Crew(), 0, {})
        )
        try:
            told: Hello = ray.get(actor.describe_device.remote())
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(f"{seats[0]} cannot be used: {error.cause}") from error
        finally:
            ray.kill(actor)
        return told
    finally:
        session.close()
