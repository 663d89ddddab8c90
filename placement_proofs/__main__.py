"""``python -m placement_proofs`` is ``placement-proofs``."""

import sys

from placement_proofs.cli import main

sys.exit(main())
