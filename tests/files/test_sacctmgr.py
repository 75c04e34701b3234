"""Account trees and QOS as sacctmgr prints them."""

import warnings

import pytest
from workloads.files import write

from gangline.envs.errors import GanglineError
from gangline.envs.files.sacctmgr import read_accounts, read_qos
from gangline.envs.files.text import UnknownWords

ASSOC = (
    "Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall|GrpTRESMins|MaxJobs|MaxTRES|"
    "MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS|GrpTRESRunMins"
)


def table(titles: str, *rows: dict[str, str]) -> str:
    """A table as -P prints it; fields that a row does not name are empty."""
    lines = ["|".join(row.get(title, "") for title in titles.split("|")) for row in rows]
    return "\n".join([titles, *lines]) + "\n"


def assoc(account: str, user: str = "", share: str = "1", **limits: str) -> dict[str, str]:
    return {"Cluster": "aurora", "Account": account, "User": user, "Share": share, "QOS": "normal", **limits}


TREE = table(
    ASSOC,
    assoc("root"),
    assoc(" root", "root"),
    assoc(" Physics", share="60", GrpTRES="gres/gpu=64", QOS="normal,high"),
    assoc("  astro", share="parent"),
    assoc("   astro", "alice", "10"),
    assoc("  nuclear", share="30", MaxJobs="4"),
    assoc("   nuclear", "bob", MaxJobs="2", MaxSubmit="10", MaxWall="1-00:00:00"),
    assoc(" chem", share="40"),
    assoc("  chem", "bob"),
)
PARENTS = """\
Cluster|Account|Par Name|User|Share|GrpTRES
aurora|root||| 1|
aurora|root||root|1|
aurora|physics|root||60|gres/gpu=64
aurora|astro|physics||parent|
aurora|astro||alice|10|
aurora|nuclear|physics||30|
aurora|nuclear||bob|1|
aurora|chem|root||40|
aurora|chem||bob|1|
"""
DUMP = """\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxNodesPerJob=50
Cluster - 'aurora':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'physics':Description='physics: all of it':Organization='phys':Fairshare=60:GrpTRES=gres/gpu:h100=32,gres/gpu=64
Account - 'chem':Description='chem':Organization='chem':Fairshare=40
Parent - 'physics'
Account - 'astro':Fairshare=parent
Account - 'nuclear':Fairshare=30:MaxJobs=4
Parent - 'astro'
User - 'alice':DefaultAccount='astro':Fairshare=10
Parent - 'nuclear'
User - 'bob':DefaultAccount='nuclear':Fairshare=1:MaxWallDurationPerJob=1440
Parent - 'chem'
User - 'bob':Fairshare=1
"""  # noqa: E501


@pytest.mark.parametrize("text", [TREE, PARENTS, DUMP], ids=["tree", "parents", "dump"])
@pytest.mark.parametrize("options", [{}, {"newline": "\r\n", "bom": True}], ids=["unix", "windows"])
def test_the_same_tree_comes_from_all_three_forms(tmp_path, text, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = read_accounts(write(tmp_path / "assoc.txt", text, **options))
    assert tree.cluster == "aurora"
    assert [(a.account, a.parent, a.shares) for a in sorted(tree.accounts, key=lambda a: a.account)] == [
        ("astro", "physics", "parent"),
        ("chem", "root", 40),
        ("nuclear", "physics", 30),
        ("physics", "root", 60),
    ]
    assert sorted((u.account, u.user, u.shares) for u in tree.users) == [
        ("astro", "alice", 10),
        ("chem", "bob", 1),
        ("nuclear", "bob", 1),
        ("root", "root", 1),
    ]
    assert {c["name"]: [g["name"] for g in c["children"]] for c in tree.nested()} == {
        "physics": ["astro", "nuclear"],
        "chem": ["bob"],
    }
    (physics,) = [a for a in tree.accounts if a.account == "physics"]
    assert physics.grp_tres["gres/gpu"] == 64


def test_limits_are_read_and_kept_in_the_words_of_the_file(tmp_path):
    tree = read_accounts(write(tmp_path / "a.txt", TREE))
    bob = tree.users[2]
    assert (bob.account, bob.max_jobs, bob.max_submit, bob.max_wall_ms) == ("nuclear", 2, 10, 86_400_000)
    physics = tree.nested()[0]
    assert physics["set"] == {"grptres": "gres/gpu=64", "qos": "normal,high"}
    dumped = read_accounts(write(tmp_path / "d.txt", DUMP))
    assert dumped.accounts[0].grp_tres == {"gres/gpu:h100": 32, "gres/gpu": 64}


def test_without_a_parent_column_or_indentation_accounts_are_taken_to_hang_under_root(tmp_path):
    flat = "Account|User|Share\nroot||1\na||10\nb||20\nb|bob|1\n"
    tree = read_accounts(write(tmp_path / "a.txt", flat))
    assert [(a.account, a.parent) for a in tree.accounts] == [("a", "root"), ("b", "root")]


def test_lineage_names_the_parent(tmp_path):
    text = "Account|User|Lineage|Share\nroot||/|1\na||/a/|10\nb||/a/b/|20\nb|bob|/a/b/0-bob/|1\n"
    tree = read_accounts(write(tmp_path / "a.txt", text))
    assert [(a.account, a.parent) for a in tree.accounts] == [("a", "root"), ("b", "a")]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "is empty, expected the output of sacctmgr"),
        ("Account  User\n-------  ----\n", "no column 'account'"),
        ("Account|Share\na|1\n", "no column 'user', expected the output of sacctmgr -P show assoc tree; found account"),
        ("Account|User|Share\na||many\n", "line 2: share is 'many', expected a whole number of at least 0, or parent"),
        ("Account|User|Share\na||10\na|bob\n", "line 3: 2 fields, expected 3"),
        ("Account|User|ParentName\na||b\n", "line 2: account 'a' is under 'b', expected an account of this file"),
        ("Account|User|ParentName\na||b\nb||a\n", "is above itself"),
        ("Account|User|Share\na||1\na|bob|1\na||2\n", "line 4: account 'a' is there already, expected each once"),
        ("Account|User|Share\na||1\na|bob|1\na|bob|1\n", "line 4: user 'bob' of account 'a' is there already"),
        (
            "Account - 'a':\nParent - 'a'\nAccount - 'root'\n",
            "line 3: account 'root' is under 'a', expected it at the top",
        ),
        ("Cluster - 'x'\nAccount - 'a'\nParent - 'a'\nAccount - 'a'\n", "line 4: account 'a' is there already"),
        ("Account|User|ID\na||x7\n", "line 2: id is 'x7', expected a whole number"),
        ("Account|User|GrpTRES\na||gpu\n", "grptres is 'gpu', expected resources such as"),
        ("Cluster|Account|User\nx|a|\ny|b|\n", "clusters x, y, expected one"),
        ("Cluster - 'x'\nParent - 'nobody'\n", "line 2: no account 'nobody' yet"),
        ("Cluster - 'x'\nnonsense\n", "line 2: 'nonsense', expected Cluster, Parent, Account or User - 'name'"),
        ("Cluster - 'x'\nAccount - 'a':Fairshare\n", "line 2: 'Fairshare', expected Key=value between colons"),
        ("Cluster - 'x'\nAccount - 'a':Fairshare=" + ":'" * 500_000, "expected"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, want):
    with pytest.raises(GanglineError) as error:
        read_accounts(write(tmp_path / "a.txt", text))
    assert want in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 400


QOS_TITLES = (
    "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpTRESMins|"
    "GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|"
    "MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES"
)
HIGH = {
    "Name": "high",
    "Priority": "100",
    "GraceTime": "00:00:30",
    "Preempt": "low,normal",
    "PreemptExemptTime": "00:10:00",
    "PreemptMode": "requeue",
    "Flags": "DenyOnLimit,NoDecay",
    "UsageFactor": "2.000000",
    "GrpTRES": "gres/gpu=32",
    "GrpJobs": "10",
    "MaxWall": "2-00:00:00",
    "MaxTRESPU": "cpu=64,gres/gpu=8",
    "MaxJobsPU": "4",
    "MaxSubmitPU": "20",
    "MinTRES": "gres/gpu=1",
}
QOS = table(
    QOS_TITLES,
    {"Name": "normal", "Priority": "0", "GraceTime": "00:00:00", "PreemptMode": "cluster", "UsageFactor": "1.000000"},
    HIGH,
    {"Name": "low", "Priority": "10", "PreemptMode": "cancel", "Flags": "NoReserve", "UsageFactor": "0.500000"},
)


def test_qos_are_read(tmp_path):
    qos = read_qos(write(tmp_path / "qos.txt", QOS))
    assert list(qos) == ["normal", "high", "low"]
    high = qos["high"]
    assert (high.priority, high.preempt, high.preempt_mode, high.preempt_exempt_ms) == (
        100,
        ("low", "normal"),
        "requeue",
        600_000,
    )
    assert (high.grace_ms, high.flags, high.usage_factor) == (30_000, ("DenyOnLimit", "NoDecay"), 2.0)
    assert (high.grp_tres, high.grp_jobs, high.max_wall_ms) == ({"gres/gpu": 32}, 10, 2 * 86_400_000)
    assert (high.max_tres_per_user, high.max_jobs_per_user, high.max_submit_per_user) == (
        {"cpu": 64, "gres/gpu": 8},
        4,
        20,
    )
    assert (high.min_tres, qos["normal"].preempt_mode) == ({"gres/gpu": 1}, None)


def test_a_qos_that_preempts_nobody_there_and_an_unknown_column(tmp_path):
    with pytest.raises(GanglineError, match="high preempts 'lwo', expected a QOS of this file"):
        read_qos(write(tmp_path / "q.txt", "Name|Preempt\nhigh|lwo\nlow|\n"))
    with pytest.warns(UnknownWords, match="colour"):
        read_qos(write(tmp_path / "q.txt", "Name|Colour\nhigh|red\n"))
