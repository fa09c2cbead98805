"""Which ranks a process is to run, by the variables of those who start gangs."""

import pytest

from turnout.errors import Misconfigured
from turnout.gang.rank_place import Pod, find_pod, gang_name, rank_place_from

LWS = {"LWS_LEADER_ADDRESS": "wan-0.wan.video", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}
PYTORCH_JOB = {
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
    "WORLD_SIZE": "2",
    "RANK": "1",
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "1",
}
TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


def test_a_pod_of_a_leader_worker_set_has_its_share_of_the_ranks() -> None:
    pod = find_pod(LWS, 8)
    assert pod == Pod(1, 2, 4, ("wan-0.wan.video", "29500"))
    assert pod is not None
    assert pod.variables(3) == {
        "RANK": "7",
        "LOCAL_RANK": "3",
        "WORLD_SIZE": "8",
        "MASTER_ADDR": "wan-0.wan.video",
        "MASTER_PORT": "29500",
    }


def test_a_pod_of_a_pytorch_job_has_its_share_of_the_ranks() -> None:
    assert find_pod(PYTORCH_JOB, 2) == Pod(1, 2, 1, ("job-master-0", "23456"))
    assert find_pod(PYTORCH_JOB, 16) == Pod(1, 2, 8, ("job-master-0", "23456"))


def test_a_lone_pod_has_them_all_and_meets_on_its_own_machine() -> None:
    pod = find_pod({"HOSTNAME": "wan-0"}, 2)
    assert pod == find_pod({"PET_NODE_RANK": "0", "PET_NNODES": "1"}, 2) == Pod(0, 1, 2, None)
    assert pod is not None
    assert pod.variables(1) == {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}


def test_what_torchrun_has_placed_is_one_rank() -> None:
    assert find_pod(TORCHRUN, 8) is None
    assert find_pod({**TORCHRUN, **LWS}, 8) is None, "also in a pod of a LeaderWorkerSet"
    assert find_pod({"RANK": "0", "WORLD_SIZE": "2"}, 2) is None
    place = rank_place_from(TORCHRUN)
    assert (place.rank, place.local_rank, place.ranks) == (5, 1, 8)


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({**LWS, "LWS_GROUP_SIZE": "3"}, 8),
        ({**LWS, "LWS_GROUP_SIZE": "0"}, 8),
        ({**LWS, "LWS_WORKER_INDEX": "2"}, 8),
        ({**LWS, "LWS_WORKER_INDEX": "x"}, 8),
        ({**LWS, "LWS_LEADER_ADDRESS": ""}, 8),
        ({**PYTORCH_JOB, "PET_NNODES": "1:3"}, 8),
    ],
)
def test_what_does_not_fit_is_refused(environ: dict[str, str], ranks: int) -> None:
    with pytest.raises(Misconfigured):
        find_pod(environ, ranks)


def test_gangs_are_named_after_their_pod() -> None:
    assert gang_name({"TORCHELASTIC_RUN_ID": "none"}, "wan-0") == "wan-0"
    assert gang_name({"TORCHELASTIC_RUN_ID": "my run"}, "wan-0") == "my-run"
    assert gang_name({"POD_NAME": "wan-0-1", "TORCHELASTIC_RUN_ID": "none"}, "host") == "wan-0-1"
    assert gang_name({}, "--") == "gang"
