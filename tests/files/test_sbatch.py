"""sbatch command lines and scripts."""

import pytest
from workloads.files import write

from gangline.envs.core.spec import WorldSpec
from gangline.envs.errors import GanglineError
from gangline.envs.files.sbatch import read_command, read_script

GIB = 1 << 30


def test_the_command_line_of_the_text():
    request = read_command("sbatch --nodes=8 --ntasks-per-node=8 --gres=gpu:h100:8 train.sh")
    assert (request.nodes, request.ntasks_per_node, request.gpus_per_node, request.gpu_type) == (8, 8, 8, "h100")
    assert (request.num_nodes, request.num_tasks, request.num_gpus, request.num_cpus) == (8, 64, 64, 64)
    assert request.script == "train.sh"
    job = request.job_spec("train", work_ms=1000)
    (pods,) = job.pod_sets
    assert (pods.count, pods.request, pods.flavors) == (8, {"gpu": 8000, "cpu": 8000}, ["h100"])
    assert job.claim_ms is None and job.kind == "training"


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ("-N 2 -n 16 -c 4", {"nodes": 2, "ntasks": 16, "cpus_per_task": 4, "num_cpus": 64}),
        ("-N2-4 -Aphys", {"nodes": 2, "max_nodes": 4, "account": "phys"}),
        ("--gpus=h100:8", {"gpus": 8, "gpu_type": "h100", "num_gpus": 8, "num_nodes": 1}),
        ("-G 4", {"gpus": 4, "gpu_type": None}),
        ("--gpus-per-task=1 --ntasks 8", {"num_gpus": 8}),
        ("--gpus-per-node 4 --nodes 3", {"num_gpus": 12}),
        ("-n 256 --ntasks-per-node=64", {"num_nodes": 4}),
        ("-t 90", {"time_limit_min": 90}),
        ("--time=1-12:00:00", {"time_limit_min": 36 * 60}),
        ("--time=00:00:30", {"time_limit_min": 1}),  # whole minutes, rounded up
        ("--time=UNLIMITED", {"time_limit_min": None, "unlimited": True}),
        ("--mem=64G", {"memory_per_node": 64 * GIB}),
        ("--mem 512M", {"memory_per_node": GIB // 2}),
        ("-p batch,urgent -q high", {"partitions": ("batch", "urgent"), "qos": "high"}),
        ("--exclusive --no-requeue -H", {"exclusive": True, "requeue": False, "hold": True}),
        ("--exclusive=user", {"exclusive": True}),
        ("--nice --nodelist=n[1-2]", {"nice": 100, "nodelist": ("n1", "n2")}),
        ("--nice=-5", {"nice": -5}),
        ("--array=0-6:2,9%2", {"array": (0, 2, 4, 6, 9), "array_limit": 2}),
        ("-J 'my job' --dependency=afterok:12 --begin=now+60", {"name": "my job", "dependency": "afterok:12"}),
        ("--output=x.log -D /tmp --export ALL --parsable", {"nodes": None}),  # decide nothing
        ("--ntasks-per-n=4", {"ntasks_per_node": 4}),  # a beginning that is not ambiguous
        ("--gres=gpu:2,nvme:1 --gpus=8", {"num_gpus": 8, "num_nodes": 4}),
    ],
)
def test_options(options, want):
    request = read_command(f"FOO=1 sbatch {options} job.sh --nodes=99")
    assert {name: getattr(request, name) for name in want} == want
    assert request.script == "job.sh"


def test_continued_lines_and_a_prompt():
    request = read_command("$ /usr/bin/sbatch -N 2 \\\n  --gres=gpu:8 \\\r\n  run.sh")
    assert (request.nodes, request.num_gpus) == (2, 16)


@pytest.mark.parametrize("options", [{}, {"newline": "\r\n", "bom": True}])
def test_a_script_and_a_command_line_that_overrides_it(tmp_path, options):
    script = (
        "#!/bin/bash\n#SBATCH --job-name=llm  # a name\n#SBATCH -N 4 --gres=gpu:h100:8\n##SBATCH -N 77\n\n"
        "# a remark\n#SBATCH --time=2-0\nsrun train\n#SBATCH --nodes=99\n"
    )
    path = write(tmp_path / "train.sh", script, **options)
    request = read_script(path)
    assert (request.name, request.nodes, request.num_gpus, request.time_limit_min) == ("llm", 4, 32, 2 * 24 * 60)
    over = read_command("sbatch -N 2 --gres=gpu:4 train.sh", folder=tmp_path)
    assert (over.nodes, over.num_gpus, over.time_limit_min, over.name) == (2, 8, 2880, "llm")


def test_gpus_that_do_not_divide_by_the_nodes_are_pods_of_two_kinds():
    job = read_command("sbatch -N 2 --gpus=7 x.sh").job_spec("x", work_ms=1, with_cpus=False)
    assert [(p.count, p.request) for p in job.pod_sets] == [(1, {"gpu": 4000}), (1, {"gpu": 3000})]
    assert WorldSpec(jobs=[job]).jobs[0].tenant == "default"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("sbatch --nodess=8 x.sh", "no option '--nodess'; known: the options of sbatch(1); did you mean 'nodes'?"),
        ("sbatch --nod=8 x.sh", "no option '--nod'; known: --nodelist, --nodes"),
        ("sbatch -Z x.sh", "no option '-Z'"),
        ("sbatch --nodes=many x.sh", "--nodes is 'many', expected a number of nodes such as 4, or 2-4"),
        ("sbatch --nodes=0 x.sh", "--nodes is '0'"),
        ("sbatch --gres=gpu:h100:x:8 x.sh", "--gres is 'gpu:h100:x:8', expected resources such as gpu:8"),
        ("sbatch --mem=lots x.sh", "--mem is 'lots', expected a size such as 512M"),
        ("sbatch --time=noon x.sh", "--time is 'noon', expected a time such as 90"),
        ("sbatch --nodes", "--nodes has no value"),
        ("sbatch 'x", "has no end"),
        ("srun x", "expected sbatch OPTIONS SCRIPT"),
        ("", "expected sbatch OPTIONS SCRIPT"),
        ("sbatch --gpus-per-task=1 x.sh", "--gpus-per-task without a number of tasks"),
        ("sbatch -N 2 --gres=gpu:8 --gpus=8 x", "8 GPUs in all and 8 on each of 2 nodes, expected one number"),
        ("sbatch -N 1 : -N 2 x.sh", "a heterogeneous job"),
        ("sbatch --array=5-1000000000 x.sh", "--array is '5-1000000000', expected"),
        ("sbatch --nodes=" + "9" * 1_000 + " x.sh", "expected a number of nodes"),
        ("sbatch --nodes=" + "9" * 5_000_000 + " x.sh", "5000020 characters, expected at most 65536"),
    ],
)
def test_a_wrong_command_is_one_line(line, want):
    with pytest.raises(GanglineError) as error:
        read_command(line)
    assert want in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 300


def test_a_wrong_line_of_a_script_is_named(tmp_path):
    path = write(tmp_path / "t.sh", "#!/bin/sh\n#SBATCH --time=noon\n")
    with pytest.raises(GanglineError, match=r"t\.sh line 2: --time is 'noon'"):
        read_script(path)


def test_an_array_is_a_job_for_each_index():
    request = read_command("sbatch --array=0-6:3%2 --gpus-per-node=2 x.sh")
    jobs = request.job_specs("a", work_ms=1000)
    assert [job.name for job in jobs] == ["a_0", "a_3", "a_6"] and request.array_limit == 2
    assert [job.name for job in read_command("sbatch x.sh").job_specs("b", work_ms=1000)] == ["b"]


def test_gpus_without_a_number_of_nodes_are_pods_of_one_gpu():
    """So that they fill the first node and spill over to the next; with nodes each pod is a node's part."""
    (pods,) = read_command("sbatch --gpus=8 --ntasks=4 x.sh").job_spec("j", work_ms=1000).pod_sets
    assert (pods.count, pods.request) == (8, {"gpu": 1000, "cpu": 500})
    (pods,) = read_command("sbatch --gpus=8 -N 2 x.sh").job_spec("j", work_ms=1000).pod_sets
    assert (pods.count, pods.request) == (2, {"gpu": 4000, "cpu": 1000})
