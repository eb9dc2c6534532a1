"""Assertions of the checks are explained like those of tests."""

import pytest

pytest.register_assert_rewrite("contracts")
