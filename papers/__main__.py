"""``python -m papers E165 [--quick] [--tier TIER] [--out FOLDER]``, as ``clew reproduce E165`` runs it.

With the committed results in place only the reports are made again; give another ``--out`` to compute all of it anew.
"""

import os
import sys

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before NumPy is imported

from clew.core.errors import ClewError  # noqa: E402
from papers.experiment import Experiment  # noqa: E402

try:
    experiment = Experiment.find(sys.argv[1] if len(sys.argv) > 1 else "")
except ClewError as error:
    raise SystemExit(str(error)) from None
raise SystemExit(experiment.parse(sys.argv[2:]))
