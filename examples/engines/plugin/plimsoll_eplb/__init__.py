# SPDX-License-Identifier: Apache-2.0
"""Plans expert parallelism in vLLM and SGLang with Plimsoll. Both find the package by its entry points."""
