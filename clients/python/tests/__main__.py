"""Runs all tests, and ends with a line in the form of cargo's, which the project's own script counts."""

import signal
import sys
import unittest
from pathlib import Path


# A shell starts what it puts into the background with interrupts ignored, and tests send some.
signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    here = Path(__file__).resolve().parent
    tests = unittest.defaultTestLoader.discover(str(here), top_level_dir=str(here.parent))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(tests)
    for why in sorted({why for _, why in result.skipped}):
        count = sum(1 for _, other in result.skipped if other == why)
        print(f"SKIP {count} tests of the Python client: {why}")
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; {len(result.skipped)} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
