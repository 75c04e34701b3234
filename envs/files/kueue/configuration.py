"""Kueue's Configuration, by itself or in its ConfigMap."""

from __future__ import annotations

from typing import Any

from gangline.envs.errors import GanglineError
from gangline.envs.files.kubernetes import Fields, duration_ms, meta_of, parse_yaml
from gangline.envs.files.kueue.objects import Configuration
from gangline.envs.files.text import Expected, real, shown

STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


def read_config_map(top: Fields) -> Configuration | None:
    """The Configuration in Kueue's ConfigMap; None of other ConfigMaps."""
    meta = meta_of(top)
    for key, text in top.labels("data").items():
        if key == "controller_manager_config.yaml":
            where = f"{top.where} {key} of ConfigMap {meta.name}"
            contents = [content for content in parse_yaml(text, where) if content is not None]
            return read_configuration(top.within(contents[0] if contents else {}, where))
    return None


def read_configuration(top: Fields) -> Configuration:
    """A `config.kueue.x-k8s.io` Configuration."""
    fair, admission = top.sub("fairSharing"), top.sub("admissionFairSharing")
    ready, requeuing = top.sub("waitForPodsReady"), top.sub("waitForPodsReady").sub("requeuingStrategy")
    strategies = fair.texts("preemptionStrategies")
    for i, strategy in enumerate(strategies):
        if strategy not in STRATEGIES:
            raise GanglineError(
                f"{top.where}: fairSharing.preemptionStrategies[{i}] is {shown(strategy)}, expected one of "
                f"{', '.join(STRATEGIES)}"
            )
    unless_said = not top.text("apiVersion", "").endswith("/v1beta1")  # v1beta1: off unless `enable: true`
    is_fair = "fairSharing" in top and fair.flag("enable", unless_said)
    waits = "waitForPodsReady" in top and ready.flag("enable", unless_said)
    timeout_ms = ready.parsed("timeout", duration_ms, 1_800_000)
    gates = top.sub("featureGates")
    weights = admission.sub("resourceWeights")
    configuration = Configuration(
        fair_sharing=(strategies or STRATEGIES) if is_fair else None,
        usage_half_life_ms=admission.parsed("usageHalfLifeTime", duration_ms, 0)
        if "admissionFairSharing" in top
        else None,
        usage_sampling_interval_ms=admission.parsed("usageSamplingInterval", duration_ms, 300_000),
        resource_weights={name: weights.parsed(name, _number) for name in weights.keys()},  # noqa: SIM118
        pods_ready_timeout_ms=timeout_ms if waits else None,
        block_admission=ready.flag("blockAdmission", False),
        requeuing_timestamp=requeuing.choice("timestamp", ("Eviction", "Creation"), "Eviction"),
        backoff_base_ms=requeuing.integer("backoffBaseSeconds", 60, least=0) * 1000,
        backoff_max_ms=requeuing.integer("backoffMaxSeconds", 3600, least=0) * 1000,
        backoff_limit_count=requeuing.integer("backoffLimitCount", least=0),
        gates={name: gates.flag(name, False) for name in gates.keys()},  # noqa: SIM118
    )
    fair.done()
    admission.done()
    requeuing.done()
    ready.ignore("enable", "recoveryTimeout", "requeuingStrategy")
    ready.done()
    return configuration


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise Expected("a number")
    return real(str(value))
