# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the tests: kernels with one property broken, each of which a test must name."""
