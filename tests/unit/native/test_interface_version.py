"""A kernel that was compiled for another version of XLA's interface is refused when it is loaded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jaxlib
import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
# A handler as XLA knows it, which answers the question for its version with the next one, and computes nothing.
STUB = """
#include "xla/ffi/api/c_api.h"
static XLA_FFI_Error* answer(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Metadata_Extension* asked = (XLA_FFI_Metadata_Extension*)frame->extension_start;
  if (asked) asked->metadata->api_version.minor_version = XLA_FFI_API_MINOR + 1;
  return 0;
}
"""
ASK = """
import logging, pathlib, sys
logging.basicConfig(format="%(message)s")
from mile.native import _library
_library._FILE = pathlib.Path(sys.argv[1])
from mile import native
import jax.numpy as jnp
print(native.kernel_state().value, native.kernel_name(), float(jnp.ones(3).sum()))
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
def test_kernel_of_a_newer_interface_is_refused_with_the_reason_and_xla_computes(tmp_path):
    from mile.native._library import HANDLERS

    source, library = tmp_path / "stub.c", tmp_path / "_native.so"
    handlers = (f"XLA_FFI_Error* {name}(XLA_FFI_CallFrame* frame) {{ return answer(frame); }}" for name in HANDLERS)
    source.write_text("\n".join([STUB, *handlers]))
    headers = Path(jaxlib.__file__).parent / "include"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-isystem", headers, source, "-o", library], check=True)
    variables = {name: value for name, value in os.environ.items() if name != "MILE_NATIVE"}
    done = subprocess.run([sys.executable, "-c", ASK, library], capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["refused", "xla", "3.0"], done.stderr
    assert "the native kernel cannot be used" in done.stderr
    assert "API version" in done.stderr
