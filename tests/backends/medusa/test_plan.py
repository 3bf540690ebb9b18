"""What can be chosen."""

import subprocess
import sys

from backends.medusa.plan import DEVICES, DTYPES, Load, LoadError, Plan


def test_what_is_not_chosen_is_the_packaged_model_exact_and_on_the_cpu() -> None:
    plan = Plan()
    assert plan.load == Load()
    assert plan.load.model is None
    assert (plan.load.dtype, plan.load.device) == (DTYPES[0], DEVICES[0]) == ("float32", "cpu")
    assert (plan.load.threads, plan.load.typical) == (1, False)
    assert issubclass(LoadError, Exception)


def test_neither_it_nor_the_command_line_needs_torch() -> None:
    code = "import sys; import backends.medusa.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
