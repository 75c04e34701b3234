"""Train an agent on a world, then compare it with baselines on held-out jobs. `python train.py --help`."""

import sys

from gangline.agents.training import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
