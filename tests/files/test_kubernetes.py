"""Quantities, documents and pods, whatever system they belong to."""

from fractions import Fraction

import pytest
from workloads.files import write

from gangline.envs.errors import GanglineError
from gangline.envs.files import kueue
from gangline.envs.files.kubernetes import Fields, amount, documents, duration_ms, pod_template, quantity
from gangline.envs.files.text import Expected, Unknown


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (8, 8),
        ("8", 8),
        ("500m", Fraction(1, 2)),
        ("64Gi", 64 << 30),
        ("1.5", Fraction(3, 2)),
        (0.5, Fraction(1, 2)),
        ("1e3", 1000),
        ("2k", 2000),
        ("1Ki", 1024),
        ("100n", Fraction(1, 10**7)),
        ("-1", -1),
        (".5M", 500_000),
    ],
)
def test_quantities(text, want):
    assert quantity(text) == want


@pytest.mark.parametrize("text", ["", "8GB", "64 Gi", "1.2.3", "ten", True, "1e999", "9" * 100_000, "0x10", "1_000"])
def test_other_quantities_are_refused(text):
    with pytest.raises(Expected, match="a quantity"):
        quantity(text)


def test_amounts_are_base_units_rounded_up():
    assert (amount("cpu", "500m"), amount("cpu", "1.5"), amount("cpu", "100u")) == (500, 1500, 1)
    assert (amount("memory", "64Gi"), amount("memory", "100m")) == (64 << 30, 1)
    assert amount("nvidia.com/gpu", "8") == 8
    for resource, text in (("nvidia.com/gpu", "500m"), ("cpu", "-1"), ("memory", "99999E")):
        with pytest.raises(Expected):
            amount(resource, text)


@pytest.mark.parametrize(("text", "want_s"), [("5m", 300), ("1h30m", 5400), ("168h", 604_800), ("0", 0), ("1.5s", 1.5)])
def test_durations(text, want_s):
    assert duration_ms(text) == want_s * 1000


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "5d", "-5m"])
def test_other_durations_are_refused(text):
    with pytest.raises(Expected, match="a duration"):
        duration_ms(text)


def pod(**spec):
    return pod_template(Fields({"spec": spec}, "x", "", Unknown()))


def asks(**requests):
    return {"resources": {"requests": requests}}


def test_a_pod_asks_for_its_containers_together_or_for_an_init_container_that_wants_more():
    template = pod(
        containers=[asks(cpu="1", memory="1Gi"), {"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "500m"}}}],
        initContainers=[{**asks(cpu="250m"), "restartPolicy": "Always"}, asks(cpu="4")],
        overhead={"cpu": "100m"},
    )
    assert template.requests == {"cpu": 4350, "memory": 1 << 30, "nvidia.com/gpu": 8}  # 4 + 0.25 + 0.1
    with pytest.raises(GanglineError, match=r"spec\.containers is missing, expected at least one container"):
        pod()


def test_lists_and_json_are_taken_apart(tmp_path):
    queue = '{"kind": "LocalQueue", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "q"}}'
    text = f'{{"kind": "List", "apiVersion": "v1", "items": [{queue}, {queue}]}}'
    found = list(documents(write(tmp_path / "a.json", text)))
    assert [(d.kind, d.where.partition(" document ")[2]) for d in found] == [
        ("LocalQueue", "1 item 1"),
        ("LocalQueue", "1 item 2"),
    ]
    typed = "kind: ClusterQueueList\napiVersion: kueue.x-k8s.io/v1beta1\nitems: [{metadata: {name: a}}]\n"
    assert next(documents(write(tmp_path / "b.yaml", typed))).kind == "ClusterQueue"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("kind: Queue\n\tname: x\n", "line 2: not YAML"),
        ("kind: [unclosed\n", "not YAML"),
        ("name: {{ .Values.name }}\n", "(a template? render it first)"),
        ("apiVersion: v1\nkind: Node\nkind: Pod\n", "line 3: not YAML, key 'kind' twice"),
        ("- 1\n- 2\n", "document 1: holds a list, expected an object with apiVersion and kind"),
        ("kind: Node\n", "document 1: no apiVersion, expected a Kubernetes object"),
        ("apiVersion: v1\nkind: Secret\n---\n---\napiVersion: v1\nmetadata: {}\n", "document 3: no kind, expected"),
        ("[" * 1_000_000, "not YAML"),
        ("a: " * 100_000, "not YAML"),
        ("x" * 5_000_000, "document 1: holds 'x"),
        ("\x00", "not YAML"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(tmp_path, text, want):
    with pytest.raises(GanglineError) as error:
        kueue.read(write(tmp_path / "m.yaml", text))
    assert want in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500


def test_an_alias_bomb_does_no_harm(tmp_path):
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    text = bomb + "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Cohort\nmetadata: {name: c}\nspec: {parent: *a59}\n"
    with pytest.raises(GanglineError, match=r"spec\.parent is a list, expected a text"):
        kueue.read(write(tmp_path / "m.yaml", text))
