"""Loaded by every Python process of an acceptance run in tests: makes the HIP shim the GPU's library, with a defect.

Only the process that uses the device gets it. The emulated device that it is compared with runs in another process,
which stays as it is. ACCEPTANCE_DEFECT names the defect; without it the GPU has none.
"""

import os
import sys

if "tilewright.acceptance.device_process" in sys.orig_argv and "ACCEPTANCE_DEFECT" in os.environ:
    import gpu_defects

    gpu_defects.install(os.environ["ACCEPTANCE_DEFECT"])
