"""Ask a node which GPU a cluster has: the machine that plans a sweep need not have one."""

from __future__ import annotations

from tilewright.base.errors import ClusterError
from tilewright.bench.cluster.actor import DeviceActor, DeviceInfo
from tilewright.bench.cluster.session import RaySession, import_ray
from tilewright.bench.cluster.slots import GPU, list_slots
from tilewright.bench.executor import WorkerConfig


def probe_cluster_gpu(address: str) -> DeviceInfo:
    """The description of the cluster's first GPU. The others are compared with it when they are used."""
    ray = import_ray()
    session = RaySession(address)
    try:
        nodes = session.list_nodes()
        seats = sorted(list_slots(nodes.values(), [GPU], builds=False))
        if not seats:
            raise ClusterError(
                f"none of the cluster's {len(nodes)} nodes has a GPU that Ray knows of. Start nodes with `ray start "
                "--num-gpus N`, or name another device"
            )
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  (part of an extra)

        actor = (
            ray.remote(DeviceActor)
            .options(num_gpus=1, scheduling_strategy=NodeAffinitySchedulingStrategy(seats[0].node, soft=False))
            .remote(GPU, WorkerConfig(), 0, {})
        )
        try:
            told: DeviceInfo = ray.get(actor.describe_device.remote())
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(f"{seats[0]} cannot be used: {error.cause}") from error
        finally:
            ray.kill(actor)
        return told
    finally:
        session.close()
