"""`python -m footplate`: the command `footplate`."""

import sys

from footplate.cli.main import main

sys.exit(main())
