"""Run the stages of an acceptance one after another. Each result stands, whatever happens in the next stage."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewright import arch as archs
from tilewright.acceptance import agreement, host_facts, timing_checks
from tilewright.acceptance.device_client import STEP_S, DeviceClient, StepAnswer
from tilewright.acceptance.instruction_classes import read_mnemonics
from tilewright.acceptance.result import FAILED, PASSED, SKIPPED, STAGES, AcceptanceResult, StageResult, format_hip
from tilewright.acceptance.sample import Sample, choose_problems, choose_sample, choose_timed_problem
from tilewright.arch.spec import Arch
from tilewright.base.errors import TilewrightError
from tilewright.base.events import report_task
from tilewright.bench.build_ahead import make_artifact_ref
from tilewright.building.compile_job import CODE_OBJECT, LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.building.toolchain import Survey, find_toolchain, survey_toolchains
from tilewright.emulator import hardware
from tilewright.ops import dump_problem, find_op
from tilewright.ops.kernel import Kernel
from tilewright.registry.registry import Registry

# Trials of a kernel that are compared with the emulated device, which takes a second for each.
COMPARED = 4
# The op's special inputs, and random ones.
_SPECIAL = 0
# Ways in which the process ended: the kernel's other problems would probably end it, too.
_ENDED = ("crashed", "timeout")


@dataclass(frozen=True, kw_only=True)
class AcceptanceRequest:
    """The device and the settings. `choose` gives the kernels for a GPU; by default the smallest of each kind."""

    device: str
    choose: Callable[[Arch], Sample] = choose_sample
    trials: int | None = None  # None: COMPARED for agreement, all for verification
    seed: int = 1
    jobs: int | None = None
    limit_s: float = STEP_S


class SkippedError(Exception):
    """A stage that is not possible here, with the reason."""


@dataclass
class _State:
    """The results of earlier stages that later ones need."""

    arch: Arch | None = None
    product: str = ""
    sample: Sample = field(default_factory=lambda: Sample(()))
    artifacts: dict[Kernel, Artifact] = field(default_factory=dict)  # those that could be loaded


def run_acceptance(
    request: AcceptanceRequest, logs: Path, keep: Callable[[AcceptanceResult], None]
) -> AcceptanceResult:
    """Run all stages. `keep` gets the result after every stage; each stage has a log in the folder `logs`.

    An exception of a stage is its result. Only an interrupt ends the run early, and `keep` has the stages before it.
    """
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
    survey = survey_toolchains()
    result = AcceptanceResult(request.device, created, host_facts.read_versions(survey))
    run = AcceptanceRun(request, survey, logs)
    with run.client:
        for name in STAGES:
            stage = run.run_stage(name)
            result = replace(result, stages=(*result.stages, stage), kernels=run.describe_kernels())
            keep(result)
    return result


class AcceptanceRun:
    """A run: the process that uses the device, and the results that later stages need."""

    def __init__(self, request: AcceptanceRequest, survey: Survey, logs: Path) -> None:
        self.request = request
        self._survey = survey
        self.client = DeviceClient(request.limit_s)
        self._logs = logs
        self._state = _State()
        self._stages: Mapping[str, Callable[[], StageResult]] = {
            "environment": self.read_environment,
            "load": self.load_kernels,
            "kernel": self.run_one_kernel,
            "agreement": self.compare_kernels,
            "verification": self.verify_kernels,
            "timing": self.check_times,
            "graph": self.capture_graph,
        }

    def run_stage(self, name: str) -> StageResult:
        """The result of a stage. Every exception except an interrupt is a result."""
        began = time.monotonic()
        try:
            found = self._stages[name]()
        except SkippedError as reason:
            found = StageResult(name, SKIPPED, str(reason))
        except TilewrightError as error:
            found = StageResult(name, FAILED, str(error))
        except Exception as error:  # the other stages are not affected
            found = StageResult(name, FAILED, f"{type(error).__name__}: {error}")
            with self.get_log(name).open("a", encoding="utf-8") as log:
                log.write(traceback.format_exc())
        with self.get_log(name).open("a", encoding="utf-8") as log:
            log.write(f"{found.verdict}: {found.summary}\n")
        return replace(found, seconds=time.monotonic() - began)

    def get_log(self, stage: str) -> Path:
        """The log of a stage."""
        return self._logs / f"{stage}.log"

    def _ask(self, stage: str, step: str, **arguments: Any) -> StepAnswer:
        return self.client.ask(step, self.get_log(stage), device=self.request.device, **arguments)

    def _require_arch(self) -> Arch:
        if self._state.arch is None:
            raise SkippedError("the device cannot be used: see the environment")
        return self._state.arch

    def _require_kernels(self) -> dict[Kernel, Artifact]:
        self._require_arch()
        if not self._state.artifacts:
            raise SkippedError("none of the kernels could be loaded")
        return self._state.artifacts

    def read_environment(self) -> StageResult:
        """Read the facts of the machine and of the GPU."""
        with report_task("environment"):
            facts = {"driver": host_facts.read_driver(), "toolchain": host_facts.read_toolchain(self._survey)}
            answer = self._ask("environment", "read_gpu")
        if not answer.ok:
            return StageResult("environment", FAILED, answer.error, facts=facts)
        gpu = answer.found
        facts["gpu"] = gpu
        if gpu["arch"] is None:
            return StageResult("environment", FAILED, str(gpu["arch_problem"]), facts=facts)
        self._state.arch = archs.load(gpu["arch"])
        memory = f"{gpu['memory_bytes'] / 2**30:.0f} GiB"
        summary = f"{gpu['product'] or 'a GPU without a name'}, {gpu['arch']}, {gpu['units']} units, {memory}"
        if facts["toolchain"]["problem"]:
            return StageResult("environment", FAILED, f"{summary}; {facts['toolchain']['problem']}", facts=facts)
        return StageResult("environment", PASSED, f"{summary}, HIP {format_hip(gpu['hip_runtime'])}", facts=facts)

    def load_kernels(self) -> StageResult:
        """Choose the sample, build it or take it from the store, and load each kernel on the device."""
        arch = self._require_arch()
        with report_task("choosing kernels"):
            sample = self._state.sample = self.request.choose(arch)
        registry = Registry.of(list(sample.kernels)).build(self.request.jobs)
        rows = []
        with report_task("loading kernels", len(registry.kernels)) as advance:
            for kernel in registry.kernels:
                entry = registry.results[kernel]
                if isinstance(entry, Artifact):
                    answer = self._ask("load", "load_kernel", built=_to_plain(kernel, entry))
                    row = {"verdict": "loaded" if answer.ok else "not loaded", "message": answer.error}
                    if answer.ok:
                        self._state.artifacts[kernel] = entry
                else:
                    row = {"verdict": "not built", "message": str((entry.facts.get("errors") or ["no error"])[0])}
                rows.append({**_name(kernel), **row})
                advance(kernel.slug)
        good = len(self._state.artifacts)
        kinds = len({(row["op"], row["kind"]) for row in rows})
        summary = f"{good} of {len(rows)} kernels of {kinds} kinds are built and loaded"
        if sample.missing:
            summary += f"; {len(sample.missing)} kinds have no kernel for {arch.name} in the built-in sets"
        facts = {"missing": [each.to_json() for each in sample.missing]}
        return StageResult("load", PASSED if good == len(rows) > 0 else FAILED, summary, facts=facts, rows=rows)

    def run_one_kernel(self) -> StageResult:
        """Run the first kernel on one problem and compare the result with the reference."""
        kernel, artifact = next(iter(self._require_kernels().items()))
        problem = choose_problems(kernel, self._require_arch(), 1)[0]
        with report_task("one kernel"):
            row = self._verify("kernel", kernel, artifact, problem)
        good = row["verdict"] == "ok"
        summary = f"{kernel.slug} computes {row['problem']}" if good else f"{kernel.slug}: {row['message']}"
        return StageResult("kernel", PASSED if good else FAILED, summary, rows=[row])

    def _verify(self, stage: str, kernel: Kernel, artifact: Artifact, problem: Any) -> dict[str, Any]:
        built, text = _to_plain(kernel, artifact), dump_problem(problem)
        answer = self._ask(stage, "verify_kernel", built=built, problem=text, seed=self.request.seed)
        if answer.ok:
            return {**_name(kernel), **answer.found}
        return {**_name(kernel), "problem": text, "verdict": answer.kind or "failed", "message": answer.error}

    def compare_kernels(self) -> StageResult:
        """Run each kernel on the device and on the emulated device, and compare the results bit by bit."""
        kernels, arch = self._require_kernels(), self._require_arch()
        if arch.name not in hardware.EMULATED:
            known = ", ".join(hardware.EMULATED)
            raise SkippedError(f"{arch.name} cannot be emulated, so nothing can be compared. Known: {known}")
        rows: list[dict[str, Any]] = []
        with report_task("comparing with the emulated device", len(kernels)) as advance:
            for kernel, artifact in kernels.items():
                rows += self._compare(kernel, artifact, f"emulated:{arch.name}", arch)
                advance(kernel.slug)
        uses = self._read_uses() if agreement.needs_disassembly(rows) else {}
        judged = agreement.judge(rows, uses)
        facts = {
            "twin": f"emulated:{arch.name}",
            "symptom": judged.symptom,
            "suspects": [each.to_json() for each in judged.suspects],
            "exclusive": {name: dict(found) for name, found in judged.exclusive.items()},
            "kernels": {each.kernel: each.verdict for each in judged.kernels},
            "meanings": dict(agreement.MEANINGS),
        }
        listed = [row for each in judged.kernels for row in each.rows]
        return StageResult("agreement", PASSED if judged.ok else FAILED, judged.describe(), facts=facts, rows=listed)

    def _compare(self, kernel: Kernel, artifact: Artifact, twin: str, arch: Arch) -> list[dict[str, Any]]:
        rows = []
        built = _to_plain(kernel, artifact)
        for problem in choose_problems(kernel, arch, self.request.trials or COMPARED):
            for seed in dict.fromkeys((_SPECIAL, self.request.seed)):
                text = dump_problem(problem)
                answer = self._ask("agreement", "compare_kernel", twin=twin, built=built, problem=text, seed=seed)
                if answer.ok:
                    rows.append({**_name(kernel), **answer.found})
                    continue
                failed = {"problem": text, "seed": seed, "verdict": agreement.FAULT, "message": answer.error}
                rows.append({**_name(kernel), **failed})
                if answer.kind in _ENDED:
                    return rows
        return rows

    def _read_uses(self) -> dict[str, frozenset[str]]:
        """The mnemonics of all kernels of the sample, from their code objects."""
        toolchain, arch = find_toolchain(), self._require_arch()
        found = {}
        with report_task("reading code objects", len(self._state.artifacts)) as advance:
            for kernel, artifact in self._state.artifacts.items():
                found[kernel.slug] = read_mnemonics(artifact.verify_file(CODE_OBJECT), arch, toolchain)
                advance(kernel.slug)
        return found

    def verify_kernels(self) -> StageResult:
        """Verify each kernel with the op's reference and tolerance."""
        kernels, arch = self._require_kernels(), self._require_arch()
        rows: list[dict[str, Any]] = []
        with report_task("verifying kernels", len(kernels)) as advance:
            for kernel, artifact in kernels.items():
                for problem in choose_problems(kernel, arch, self.request.trials):
                    rows.append(self._verify("verification", kernel, artifact, problem))
                    if rows[-1]["verdict"] in _ENDED:
                        break
                advance(kernel.slug)
        wrong = [row for row in rows if row["verdict"] != "ok"]
        summary = f"{len(rows) - len(wrong)} of {len(rows)} problems are right, on {len(kernels)} kernels"
        if wrong:
            summary += f". The first that is not: {wrong[0]['kernel']}: {wrong[0]['message']}"
        return StageResult("verification", FAILED if wrong else PASSED, summary, rows=rows)

    def check_times(self) -> StageResult:
        """Check that the device's events measure plausible times: of a copy, then of a kernel."""
        kernels, arch = self._require_kernels(), self._require_arch()
        with report_task("timing"):
            copied = self._ask("timing", "time_events")
            if not copied.ok:
                return StageResult("timing", FAILED, copied.error)
            if not copied.found["time"]:
                raise SkippedError("the device's events measure no time, as those of an emulated device")
            checks = list(timing_checks.check_copy(copied.found, arch))
            facts: dict[str, Any] = {"copy": copied.found}
            bad = [f"{check.name}: {check.text}" for check in checks if not check.ok]
            # With wrong times a kernel would be launched for minutes, until they add up to enough.
            if not bad:
                kernel, artifact = next(iter(kernels.items()))
                timed = self._time_kernel(kernel, artifact, choose_timed_problem(kernel, arch))
                facts["kernel"] = {**_name(kernel), **timed.found, "message": timed.error}
                found = list(timing_checks.check_kernel(timed.found)) if timed.ok else []
                checks += found
                bad = [f"{check.name}: {check.text}" for check in found if not check.ok]
                bad += [] if timed.ok else [f"{kernel.slug} could not be timed: {timed.error}"]
        summary = "; ".join(bad) if bad else f"{len(checks)} figures are plausible"
        rows = [check.to_json() for check in checks]
        return StageResult("timing", FAILED if bad else PASSED, summary, facts=facts, rows=rows)

    def _time_kernel(self, kernel: Kernel, artifact: Artifact, problem: Any) -> StepAnswer:
        built, seed = _to_plain(kernel, artifact), self.request.seed
        return self._ask("timing", "time_kernel", built=built, problem=dump_problem(problem), seed=seed)

    def capture_graph(self) -> StageResult:
        """Capture a launch in a graph of torch, if it is installed for ROCm."""
        kernels, arch = self._require_kernels(), self._require_arch()
        version, reason = host_facts.find_rocm_torch()
        if version is None:
            raise SkippedError(reason)
        self.client.stop()  # torch's HIP library must be the first one in the process
        kernel, artifact = next(iter(kernels.items()))
        problem = dump_problem(choose_problems(kernel, arch, 1)[0])
        with report_task("graph capture"):
            built, seed = _to_plain(kernel, artifact), self.request.seed
            answer = self._ask("graph", "capture_graph", built=built, problem=problem, seed=seed)
        if not answer.ok:
            return StageResult("graph", FAILED, answer.error)
        found = answer.found
        good = found["idle_while_captured"] and found["same_as_direct"]
        said = "equals" if found["same_as_direct"] else "differs from"
        summary = f"a replayed launch {said} a direct one, with torch {found['torch']}"
        if not found["idle_while_captured"]:
            summary += "; the kernel ran while it was captured"
        return StageResult("graph", PASSED if good else FAILED, summary, facts=found)

    def describe_kernels(self) -> tuple[dict[str, Any], ...]:
        """The kernels that were loaded, with the digests of their files."""
        return tuple(
            {
                **_name(kernel),
                "key": artifact.key,
                "code_object": asdict(artifact.files[CODE_OBJECT]),
                "library": asdict(artifact.files[LIBRARY]),
            }
            for kernel, artifact in self._state.artifacts.items()
        )


def _name(kernel: Kernel) -> dict[str, str]:
    return {"kernel": kernel.slug, "op": kernel.op, "kind": find_op(kernel.op).kind(kernel.config).name}


def _to_plain(kernel: Kernel, artifact: Artifact) -> dict[str, str]:
    return {"slug": kernel.slug, **asdict(make_artifact_ref(artifact))}
