"""From artifacts to members: order, and every unusable entry named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pack_parts import kernel_of, unlinkable

from tilewright.base.errors import CorruptError, PackError
from tilewright.building.pack.kernels import collect_members, group_by_gpu
from tilewright.building.store.artifact import Failure
from tilewright.building.store.local import Store


def test_members_are_sorted_by_gpu_and_slug_whatever_their_order(tmp_path: Path) -> None:
    kernels = [
        kernel_of("gfx1201", mma=(16, 16, 16)),
        kernel_of("gfx942", pad_m=True),
        kernel_of("gfx90a"),
        kernel_of(),
    ]
    artifacts = [unlinkable(kernel, tmp_path) for kernel in kernels]
    members = collect_members(artifacts)

    assert members == collect_members(reversed(artifacts))
    assert list(group_by_gpu(members)) == ["gfx90a", "gfx942", "gfx1201"]
    assert [m.kernel for m in group_by_gpu(members)["gfx942"]] == sorted((kernels[1], kernels[3]), key=lambda k: k.slug)


def test_no_artifacts_make_no_pack() -> None:
    with pytest.raises(PackError, match="at least 1 kernel, got 0"):
        collect_members([])


def test_a_kernel_given_twice_is_named(tmp_path: Path) -> None:
    artifact = unlinkable(kernel_of(), tmp_path)

    with pytest.raises(PackError, match=f"{kernel_of().slug} occurs 2 times"):
        collect_members([artifact, artifact])


def test_a_failed_build_is_named_with_its_error_and_the_others_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    failures = [
        store.put_failure(char * 32, f"x.hip:1:2: error: no {char}\n", {"slug": f"kernel {char}"}) for char in "ab"
    ]
    assert all(isinstance(failure, Failure) for failure in failures)

    with pytest.raises(PackError) as caught:
        collect_members([unlinkable(kernel_of(), tmp_path), *failures])

    assert "2 problem(s)" in str(caught.value)
    assert "kernel a: its build failed (x.hip:1:2: error: no a). Leave it out" in str(caught.value)
    assert f"tilewright cache show {'b' * 32}" in str(caught.value)


def test_an_artifact_without_objects_or_facts_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(b"x")
    lacking = Store(tmp_path / "store").put("0" * 32, {"kernel.so": tmp_path / "kernel.so"}, {"slug": "s", "op": "o"})

    with pytest.raises(PackError, match=r"has no arch, symbol, unit, kernel\.co, host\.o\. Build the kernel again"):
        collect_members([lacking])


@pytest.mark.parametrize("fact", ["op", "arch", "symbol", "kernel"])
def test_facts_that_do_not_fit_the_name_are_refused(fact: str, tmp_path: Path) -> None:
    artifact = unlinkable(kernel_of(), tmp_path, **{fact: "another"})

    with pytest.raises(PackError, match=f"{fact} of its artifact {artifact.key} do not match its name"):
        collect_members([artifact])


def test_a_name_of_another_time_is_refused(tmp_path: Path) -> None:
    artifact = unlinkable(kernel_of(), tmp_path, slug=kernel_of().slug[:-12] + "0" * 12)

    with pytest.raises(PackError, match="digest is 000000000000"):
        collect_members([artifact])


def test_two_kernels_of_one_unit_are_refused(tmp_path: Path) -> None:
    one, two = kernel_of(), kernel_of(pad_m=True)
    artifacts = [unlinkable(kernel, tmp_path, unit="u") for kernel in (one, two)]

    with pytest.raises(PackError, match="have the same unit u"):
        collect_members(artifacts)
    elsewhere = unlinkable(kernel_of("gfx90a"), tmp_path, unit="u")
    assert len(collect_members([artifacts[0], elsewhere])) == 2


def test_a_damaged_artifact_is_found_when_it_is_read(tmp_path: Path) -> None:
    artifact = unlinkable(kernel_of(), tmp_path)
    (member,) = collect_members([artifact])
    (artifact.folder / "host.o").write_bytes(b"something else")

    with pytest.raises(CorruptError, match=r"host\.o"):
        member.verify_files()
