"""`python -m trainmon`."""

from __future__ import annotations

from trainmon.run import main

if __name__ == "__main__":
    main()
