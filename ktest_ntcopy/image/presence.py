# SPDX-License-Identifier: GPL-2.0-only
"""Whether a kernel has a feature: all of it, none of it, or a part."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ktest_ntcopy.image.expectations import Finding, Found, check
from ktest_ntcopy.image.facts import Image

if TYPE_CHECKING:
    from ktest_ntcopy.features.model import Feature


class Verdict(enum.StrEnum):
    """What all findings about one feature come to."""

    PRESENT = "present"  #: everything that applies is there
    PARTIAL = "partial"  #: some of it is there
    ABSENT = "absent"  #: nothing that only kernels with the feature have
    UNKNOWN = "unknown"  #: the file cannot tell
    NOT_APPLICABLE = "not applicable"  #: nothing is known that tells such kernels apart


def verdict(findings: Iterable[Finding]) -> Verdict:
    """Sum up the findings about one feature."""
    applied = [f for f in findings if f.found is not Found.NOT_APPLICABLE]
    if not applied:
        return Verdict.NOT_APPLICABLE
    # What is not there proves nothing: an older kernel is without it, too.
    own = {f.found for f in applied if not f.expectation.shared and not f.expectation.absent}
    if not own:
        return Verdict.NOT_APPLICABLE  # nothing tells such kernels apart
    everything = {f.found for f in applied}
    if Found.FOUND not in own and Found.MISSING in own:
        return Verdict.ABSENT
    if everything == {Found.FOUND}:
        return Verdict.PRESENT
    return Verdict.PARTIAL if Found.MISSING in everything else Verdict.UNKNOWN


def feature_present(image: Image, feature: Feature) -> bool | None:
    """Whether the kernel has the feature, or a part of it; None if that cannot be told.

    True if any trace is found that no kernel without the feature has: half a feature is
    one to fail, not one to skip.  False if a marker is missing and so is the rest, as
    far as the file can tell.
    """
    kernel = image.kernel
    own = [
        e for e in feature.expected(kernel.version, kernel.arch) if not e.shared and not e.absent
    ]
    markers: set[Found] = set()
    others: set[Found] = set()
    # Cheap questions first: code is looked at only where nothing else answers.
    for expectation in sorted(own, key=lambda e: (not e.marker, e.kind in ("call", "pointer"))):
        found = check(image, expectation, alike=False).found
        if found is Found.FOUND:
            return True
        if found is not Found.NOT_APPLICABLE:
            (markers if expectation.marker else others).add(found)
    answers = markers or others
    if not answers or Found.UNKNOWN in answers:
        return False if Found.MISSING in answers else None
    return False
