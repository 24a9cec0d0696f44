"""A writer in a process of its own: python -m benchmarks.sourcing.processes SUBJECT FOLDER FIRST COUNT"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.sourcing.clients import open_client
from benchmarks.sourcing.rates import deposits
from benchmarks.together import together


def main() -> None:
    subject, folder, first, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    client = open_client(subject, folder)
    for number in range(first, first + 2):  # opens what is opened at the first use
        client.balance(number)
    with together():
        deposits(client, first=first, count=count)
    client.close()


if __name__ == "__main__":
    main()
