"""Ask questions about measurements with SQL.

Journals and tables of records are one relation, `records`. The times of this example are made up.
"""

import tempfile

import tilewright as tw
from tilewright.bench import Journal, Record, Task, TimeStats, run_query
from tilewright.ops import dump_problem

registry = tw.Registry.of("fp16_rcr_compute", "gfx942")
with tempfile.TemporaryDirectory() as folder:
    with Journal(folder, "recorder", fsync="never") as journal:
        for m in (512, 2048, 8192):
            problem = tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr")
            for choice in registry.select(problem, built=False):
                us, name = choice.us, choice.kernel.slug
                task = Task(op="gemm", arch="gfx942", kernel=name, problem=dump_problem(problem), device="gpu:0")
                times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=5)
                journal.append(Record(task=task, status="ok", kind="time", times=times))
    answer = run_query(
        """
        SELECT CAST(problem->>'m' AS INT) AS m, COUNT(*) AS kernels, ROUND(MIN(us), 1) AS best,
               ROUND(MAX(us) / MIN(us), 2) AS slowest_to_best, ROUND(MAX(tflops)) AS tflops
        FROM records GROUP BY m ORDER BY m
        """,
        folder,
    )
print(*answer.columns)
for row in answer.rows:
    print(*row)
assert [row[0] for row in answer.rows] == [512, 2048, 8192]
