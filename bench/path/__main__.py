import sys

from bench.path.command import main

if __name__ == "__main__":
    sys.exit(main())
