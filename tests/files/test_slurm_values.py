"""Slurm's times, sizes, host ranges and resources."""

import pytest

from gangline.envs.files import slurm_values
from gangline.envs.files.text import Expected

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@pytest.mark.parametrize(
    ("text", "want_s"),
    [
        ("90", 90 * 60),
        ("0", 0),
        ("90:30", 90 * 60 + 30),
        ("12:00:00", 12 * HOUR_S),
        ("100:00:01", 100 * HOUR_S + 1),
        ("7-0", 7 * DAY_S),
        ("1-12:30", DAY_S + 12 * HOUR_S + 30 * 60),
        ("1-12:00:00", DAY_S + 12 * HOUR_S),
    ],
)
def test_times(text, want_s):
    assert slurm_values.time_ms(text) == want_s * 1000


@pytest.mark.parametrize("text", ["UNLIMITED", "infinite", "-1", "NONE"])
def test_a_time_may_be_unlimited(text):
    assert slurm_values.time_ms(text) is None


@pytest.mark.parametrize("text", ["", "soon", "1-", "-5", "1:2:3:4", "1.5", "9" * 30, "12:00:00 "[:-1] + "x"])
def test_other_times_are_refused(text):
    with pytest.raises(Expected, match="a time such as"):
        slurm_values.time_ms(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("n[01-04,7]", "n01 n02 n03 n04 n7"),
        ("n1", "n1"),
        ("n1,m[2-3]", "n1 m2 m3"),
        ("rack[0-1]n[08-10]", "rack0n08 rack0n09 rack0n10 rack1n08 rack1n09 rack1n10"),
        ("gpu-[1-2].site.edu", "gpu-1.site.edu gpu-2.site.edu"),
    ],
)
def test_host_ranges(text, want):
    assert slurm_values.hosts(text) == tuple(want.split())


@pytest.mark.parametrize(
    "text", ["", "n[1-", "n1-4]", "n[4-1]", "n[a-b]", "n[1-99999999]", "n[0-999][0-999]", "n[[1]]"]
)
def test_other_host_ranges_are_refused(text):
    with pytest.raises(Expected):
        slurm_values.hosts(text)


@pytest.mark.parametrize(
    ("text", "want_mib"),
    [("512", 512), ("512M", 512), ("64G", 64 << 10), ("1.5T", 1536 << 10), ("2048K", 2), ("64GB", 64 << 10)],
)
def test_sizes(text, want_mib):
    assert slurm_values.size_bytes(text) == want_mib << 20


@pytest.mark.parametrize("text", ["", "64 G", "lots", "-1G", "1e3"])
def test_other_sizes_are_refused(text):
    with pytest.raises(Expected, match="a size"):
        slurm_values.size_bytes(text)


def test_trackable_resources_and_the_gpus_among_them():
    amounts = slurm_values.tres(
        "billing=64,cpu=64,gres/gpu:h100=64,gres/gpu=64,mem=93.75G,node=8,energy=18446744073709551614"
    )
    assert amounts == {"billing": 64, "cpu": 64, "gres/gpu:h100": 64, "gres/gpu": 64, "mem": 93.75 * 2**30, "node": 8}
    assert slurm_values.gpus_of(amounts) == (64, "h100")
    assert slurm_values.gpus_of(slurm_values.tres("gres/gpu=4")) == (4, None)
    assert slurm_values.gpus_of(slurm_values.tres("gres/gpu:a100=4,gres/gpu:h100=2")) == (6, None)
    assert slurm_values.gpus_of(slurm_values.tres("cpu=1")) == (0, None)


def test_generic_resources():
    gres = [tuple(entry) for entry in slurm_values.gres("gpu:h100:8(S:0-1),nvme:2,gpu:a100,gres/gpu:4,shard:4K")]
    assert gres == [("gpu", "h100", 8), ("nvme", None, 2), ("gpu", "a100", 1), ("gpu", None, 4), ("shard", None, 4096)]
    assert slurm_values.gres("(null)") == ()


def test_billing_weights_of_memory_are_per_mib():
    assert slurm_values.tres_weights("CPU=1.0,Mem=0.25G,GRES/gpu=2.0") == {
        "cpu": 1.0,
        "mem": 0.25 / 1024,
        "gres/gpu": 2.0,
    }
