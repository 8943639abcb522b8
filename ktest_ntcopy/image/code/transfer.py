# SPDX-License-Identifier: GPL-2.0-only
"""What decoders of machine code report."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: "jump" leaves the function (a tail call); "reference" computes an address for later use.
Kind = Literal["call", "jump", "reference", "indirect"]


class Transfer(NamedTuple):
    """One instruction that leaves its function, or takes an address."""

    at: int  #: address of the instruction
    kind: Kind
    target: int | None  #: address; for "indirect" that of the pointer, if it is fixed
