"""Kubernetes manifests: documents of YAML files, fields with a place, quantities, and what pods ask for.

Several documents in a file, `kind: List` (`kubectl get -o yaml`) and JSON are read alike. `Fields` walks a document and
knows where it is: a wrong value is `queues.yaml document 2: spec.weight is 'two', expected a whole number`, and every
field that nobody asked for ends in the list of unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import yaml

from gangline.envs.errors import GanglineError
from gangline.envs.files.text import Expected, Unknown, nearest, read_text, shown

T = TypeVar("T")

MAX_AMOUNT = (1 << 63) - 1
SUFFIXES = {
    "": Fraction(1),
    **{sign: Fraction(1000) ** (i - 3) for i, sign in enumerate(("n", "u", "m"))},
    **{sign: Fraction(1000) ** i for i, sign in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{sign}i": Fraction(1024) ** i for i, sign in enumerate("KMGTPE", 1)},
}
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
MEMORY_LIKE = ("memory", "ephemeral-storage")

_QUANTITY = re.compile(
    r"([+-]?)(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:([eE][+-]?\d{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?))\Z"
)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|m|s)")
_DURATION_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PLACEHOLDER = re.compile(r"\{\{.*\}\}|\$\{[A-Z_]+\}")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML in which a key may stand once in a mapping and a date is a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's way)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, if no plain key is there twice."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"key {shown(key.value)} twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Document:
    """One object of a file."""

    where: str  # `queues.yaml document 2`
    kind: str
    api: str  # apiVersion
    content: Mapping[str, Any]


def files_of(paths: Sequence[str | Path]) -> list[Path]:
    """The files of paths; a folder stands for the YAML and JSON files in it, in order of their names."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json"))
            if not inside:
                raise GanglineError(f"manifests {path}: a folder without .yaml, .yml or .json files, expected some")
            found += inside
        else:
            found.append(path)
    return found


def load_yaml(path: Path, what: str) -> list[Any]:
    """The documents of a YAML file, as plain data.

    Raises:
        GanglineError: no file, not YAML, a key that is there twice.
    """
    return parse_yaml(read_text(path, what), f"{what} {path}")


def parse_yaml(text: str, where: str) -> list[Any]:
    """The documents of a YAML text."""
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        hint = " (a template? render it first)" if _PLACEHOLDER.search(text[:100_000]) else ""
        tab = " (a tab? YAML is indented with blanks)" if "\\t" in repr(problem) else ""
        raise GanglineError(f"{where}{line}: not YAML, {' '.join(problem.split())[:200]}{hint}{tab}") from None
    except (RecursionError, ValueError) as error:
        raise GanglineError(f"{where}: not YAML, {' '.join(str(error).split())[:120]}") from None


def documents(path: Path) -> Iterator[Document]:
    """The objects of a manifest file; lists are taken apart, empty documents passed over.

    Raises:
        GanglineError: not YAML, or a document that is no object with apiVersion and kind.
    """
    for number, content in enumerate(load_yaml(path, "manifest"), 1):
        if content is not None:
            yield from _objects(content, f"manifest {path} document {number}")


def _objects(content: Any, where: str) -> Iterator[Document]:
    if not isinstance(content, Mapping):
        raise GanglineError(f"{where}: holds {kind_of(content)}, expected an object with apiVersion and kind")
    kind, api = content.get("kind"), content.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(api, str):
        raise GanglineError(
            f"{where}: no {'kind' if isinstance(api, str) else 'apiVersion'}, expected a Kubernetes object"
        )
    items = content.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for i, item in enumerate(items):
            if isinstance(item, Mapping):  # the items of a typed list may leave both out
                item = {"apiVersion": api, "kind": kind.removesuffix("List"), **item}
            yield from _objects(item, f"{where} item {i + 1}")
    else:
        yield Document(where, kind, api, content)


def kind_of(value: Any) -> str:
    """A value in a message; large ones by their kind."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else shown(value)


# ---------------------------------------------------------------------------------------------------------------
# Quantities
# ---------------------------------------------------------------------------------------------------------------


def quantity(value: Any) -> Fraction:
    """A Kubernetes quantity: `8`, `500m`, `64Gi`, `1.5`, `1e3`. Exact."""
    found = None if isinstance(value, bool) else _QUANTITY.match(str(value).strip())
    if found is None:
        raise Expected("a quantity such as 8, 500m or 64Gi")
    sign, digits, exponent, suffix = found.groups()
    if exponent:
        power = int(exponent[1:])
        if abs(power) > 30:
            raise Expected("a quantity with an exponent of at most 30")
        number = Fraction(digits) * Fraction(10) ** power
    else:
        number = Fraction(digits) * SUFFIXES[suffix]
    return -number if sign == "-" else number


def amount(resource: str, value: Any) -> int:
    """A quantity in base units, rounded up: milli-CPU for cpu, bytes for memory, whole pieces of anything else."""
    number = quantity(value) * (1000 if resource == "cpu" else 1)
    if number < 0:
        raise Expected("a quantity of at least 0")
    units = -(-number.numerator // number.denominator)
    if units > MAX_AMOUNT:
        raise Expected("a quantity below 2^63")
    if number.denominator != 1 and resource.endswith("gpu"):
        raise Expected("whole GPUs")
    return units


def duration_ms(value: Any) -> int:
    """A duration as Go writes it: `5m`, `1h30m`, `168h`, `300s`."""
    text = str(value).strip()
    parts = _DURATION.findall(text)
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise Expected("a duration such as 5m, 1h30m or 300s")
    return round(sum(float(number) * _DURATION_MS[unit] for number, unit in parts))


def time_ms(value: Any) -> int:
    """A time of an object's metadata, `2024-03-01T12:00:00Z`, as milliseconds since 1970."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        raise Expected("a time such as 2024-03-01T12:00:00Z") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


# ---------------------------------------------------------------------------------------------------------------
# Fields with a place
# ---------------------------------------------------------------------------------------------------------------


class Fields:
    """A mapping inside a document, that knows where it is and what has been asked for."""

    def __init__(self, value: Any, where: str, path: str, unknown: Unknown) -> None:
        self.where, self.path = where, path
        self._unknown = unknown
        self._asked: set[str] = set()
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise GanglineError(f"{where}: {path or 'the document'} is {kind_of(value)}, expected a mapping")
        self._value = value

    def within(self, value: Any, where: str) -> Fields:
        """A document inside this one, whose unknown fields are listed with this one's."""
        return Fields(value, where, "", self._unknown)

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    def at(self, key: str) -> str:
        """The path of a field."""
        plain = re.fullmatch(r"[\w-]+", key)
        return f"{self.path}.{key}" if self.path and plain else key if plain else f"{self.path}[{key}]"

    def wrong(self, key: str, expected: str) -> GanglineError:
        """The error for a field's value."""
        value = self._value.get(key)
        missing = "is missing" if value is None else f"is {kind_of(value)}"
        return GanglineError(f"{self.where}: {self.at(key)} {missing}, expected {expected}")

    def raw(self, key: str) -> Any:
        """A field as it is; None where it is not there."""
        self._asked.add(key)
        return self._value.get(key)

    def text(self, key: str, default: T = None) -> str | T:  # type: ignore[assignment]
        """A name or other text."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "a text (a name of digits needs quotes)")
        return value

    def name(self, key: str = "name") -> str:
        """A text that must be there."""
        value = self.text(key)
        if not value:
            raise self.wrong(key, "a name")
        return value

    def integer(self, key: str, default: T = None, *, least: int | None = None) -> int | T:  # type: ignore[assignment]
        """A whole number."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise self.wrong(key, "a whole number")
        if least is not None and value < least:
            raise self.wrong(key, f"a whole number of at least {least}")
        return value

    def flag(self, key: str, default: T = None) -> bool | T:  # type: ignore[assignment]
        """True or false."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def choice(self, key: str, known: Sequence[str], default: T = None) -> str | T:  # type: ignore[assignment]
        """One of a few words."""
        value = self.raw(key)
        if value is None or value == "":
            return default
        if not isinstance(value, str) or value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise self.wrong(key, f"one of {', '.join(known)}{hint}")
        return value

    def parsed(self, key: str, parse: Any, default: Any = None) -> Any:
        """A field through one of the parsers above (`quantity`, `duration_ms`, `time_ms`)."""
        value = self.raw(key)
        if value is None:
            return default
        try:
            if isinstance(value, Mapping | list):
                raise Expected("a single value")
            return parse(value)
        except Expected as error:
            raise self.wrong(key, str(error)) from None

    def amount(self, key: str, resource: str) -> int | None:
        """A quantity of a resource in base units."""
        value: int | None = self.parsed(key, lambda value: amount(resource, value))
        return value

    def sub(self, key: str) -> Fields:
        """A mapping inside; empty where it is not there."""
        return Fields(self.raw(key), self.where, self.at(key), self._unknown)

    def each(self, key: str) -> list[Fields]:
        """The mappings of a list."""
        return [Fields(v, self.where, f"{self.at(key)}[{i}]", self._unknown) for i, v in enumerate(self.list(key))]

    def list(self, key: str) -> Sequence[Any]:
        """A list; empty where it is not there."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self.list(key)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise GanglineError(f"{self.where}: {self.at(key)}[{i}] is {kind_of(value)}, expected a text")
        return tuple(values)

    def labels(self, key: str) -> dict[str, str]:
        """A mapping of texts; numbers and switches are taken as their text."""
        found = {}
        inside = self.sub(key)
        for name, value in inside._value.items():
            if isinstance(value, Mapping | list):
                raise inside.wrong(str(name), "a text")
            found[str(name)] = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value or "")
        return found

    def amounts(self, key: str) -> dict[str, int]:
        """A mapping of resources to quantities, in base units."""
        inside = self.sub(key)
        return {str(name): inside.amount(name, str(name)) or 0 for name in inside._value}

    def integers(self, key: str) -> dict[str, int]:
        """A mapping of names to whole numbers."""
        inside = self.sub(key)
        return {str(name): inside.integer(name, 0, least=0) for name in inside._value}

    def keys(self) -> tuple[str, ...]:
        """The fields that are there."""
        return tuple(str(key) for key in self._value)

    def ignore(self, *keys: str) -> None:
        """Fields that are known and decide nothing here."""
        self._asked.update(keys)

    def done(self) -> None:
        """Everything that matters was asked for: list the rest as unknown."""
        for key in self._value:
            if key not in self._asked:
                self._unknown.add(self.where, self.at(str(key)), [self.at(asked) for asked in self._asked])


@dataclass(frozen=True)
class Meta:
    """An object's metadata."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    uid: str
    created_ms: int | None


def meta_of(top: Fields) -> Meta:
    """The metadata of a document; also passes over apiVersion, kind and status."""
    top.ignore("apiVersion", "kind", "status")
    meta = top.sub("metadata")
    if "generateName" in meta and "name" not in meta:
        name = meta.name("generateName")
    else:
        name = meta.name()
    return Meta(
        name=name,
        namespace=meta.text("namespace", "default"),
        labels=meta.labels("labels"),
        annotations=meta.labels("annotations"),
        uid=meta.text("uid", ""),
        created_ms=meta.parsed("creationTimestamp", time_ms),
    )


# ---------------------------------------------------------------------------------------------------------------
# Pods, nodes, priority classes
# ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PodTemplate:
    """What matters of a pod."""

    requests: Mapping[str, int]  # base units
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    priority_class: str | None = None
    preemption_policy: str | None = None
    scheduler: str | None = None


def pod_template(template: Fields) -> PodTemplate:
    """The pod of a template, or a pod itself: `metadata` and `spec`."""
    meta, spec = template.sub("metadata"), template.sub("spec")
    return PodTemplate(
        requests=_requests(spec),
        labels=meta.labels("labels"),
        annotations=meta.labels("annotations"),
        node_selector=spec.labels("nodeSelector"),
        priority=spec.integer("priority"),
        priority_class=spec.text("priorityClassName"),
        preemption_policy=spec.choice("preemptionPolicy", ("PreemptLowerPriority", "Never")),
        scheduler=spec.text("schedulerName"),
    )


def _requests(spec: Fields) -> dict[str, int]:
    """What a pod asks for: its containers together, or an init container with the sidecars before it if that is more.

    A limit without a request is the request, as the API server would have it.
    """
    containers = spec.each("containers")
    if not containers:
        raise spec.wrong("containers", "at least one container")
    total: dict[str, int] = {}
    for container in containers:
        _add(total, _container(container))
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.each("initContainers"):
        own = _container(container)
        if container.text("restartPolicy") == "Always":
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for resource, value in own.items():
            most[resource] = max(most.get(resource, 0), value)
    _add(total, sidecars)
    for resource, value in most.items():
        total[resource] = max(total.get(resource, 0), value)
    _add(total, spec.amounts("overhead"))
    return total


def _container(container: Fields) -> dict[str, int]:
    resources = container.sub("resources")
    return {**resources.amounts("limits"), **resources.amounts("requests")}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node."""

    name: str
    labels: Mapping[str, str]
    amounts: Mapping[str, int]  # allocatable, else capacity; base units
    is_up: bool  # ready and not cordoned


def node_of(top: Fields) -> Node:
    """A `v1` Node."""
    meta = meta_of(top)
    spec, status = top.sub("spec"), top.sub("status")
    ready = [c.text("status") for c in status.each("conditions") if c.text("type") == "Ready"]
    amounts = status.amounts("allocatable") or status.amounts("capacity")
    if not amounts:
        raise status.wrong("allocatable", "what the node offers")
    return Node(
        name=meta.name,
        labels={"kubernetes.io/hostname": meta.name, **meta.labels},
        amounts=amounts,
        is_up=not spec.flag("unschedulable", False) and ready in ([], ["True"]),
    )


@dataclass(frozen=True, kw_only=True)
class PriorityClass:
    """A PriorityClass, or Kueue's WorkloadPriorityClass."""

    name: str
    value: int
    is_default: bool = False
    preemption_policy: str | None = None


def priority_class_of(top: Fields) -> PriorityClass:
    """A `scheduling.k8s.io` PriorityClass or a `kueue.x-k8s.io` WorkloadPriorityClass."""
    meta = meta_of(top)
    top.ignore("description")
    value = top.integer("value")
    if value is None:
        raise top.wrong("value", "a whole number")
    found = PriorityClass(
        name=meta.name,
        value=value,
        is_default=top.flag("globalDefault", False),
        preemption_policy=top.choice("preemptionPolicy", ("PreemptLowerPriority", "Never")),
    )
    top.done()
    return found


def priority_of(name: str | None, classes: Mapping[str, PriorityClass], where: str) -> int:
    """The value of a class; without a name the default class's, else 0.

    Raises:
        GanglineError: a class that is neither in the files nor one of Kubernetes' own.
    """
    if not name:
        return max((c.value for c in classes.values() if c.is_default), default=0)
    if name in classes:
        return classes[name].value
    if name in SYSTEM_CLASSES:
        return SYSTEM_CLASSES[name]
    known = ", ".join(sorted(classes)) or "(none)"
    raise GanglineError(f"{where}: no priority class {shown(name)}, expected one of the files; known: {known}")
