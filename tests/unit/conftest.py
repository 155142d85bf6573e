"""How the tests of the native kernel choose it and its threads."""

import pytest

from mile.native._library import _UNLIMITED, library


@pytest.fixture(params=["best", "portable"])
def kernel(request):
    """Run a test with each kernel that this machine can use."""
    library().mile_use_kernel(None if request.param == "best" else b"portable")
    yield request.param
    library().mile_use_kernel(None)


@pytest.fixture
def helpers():
    """Set the number of threads that a call may use besides its own."""
    yield library().mile_use_helpers
    library().mile_use_helpers(_UNLIMITED)
