"""The examples of docs/moving.md run, one after the other, in a process of their own."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "moving.md"


def test_the_examples_of_the_page_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 7
    program = "\n".join([*blocks, "print(trainer.state.global_step)"])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "footplate.trainer.trainer"
    assert 5 <= int(lines[-1]) < 260  # the callback ended it before the last epoch
