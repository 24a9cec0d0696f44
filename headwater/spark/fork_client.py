"""What Spark starts in place of Python: it asks the fork server for the process, and ends when that process ends.

It runs with neither `site` nor any package, so that it starts in a hundredth of a second. If the fork server is gone, or
Spark wants something else than a module, it becomes an ordinary Python.

    python -I -S fork_client.py PYTHON SOCKET -m MODULE …
"""

import os
import socket
import sys


def main() -> None:
    python, address, *arguments = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        if arguments[:1] != ["-m"]:
            raise OSError("not a module")
        connection.connect(address)
        values = [
            os.getcwd(),
            str(len(arguments)),
            *arguments,
            *(f"{key}={value}" for key, value in os.environ.items()),
        ]
        message = "\0".join(values).encode(errors="surrogateescape")
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(message)
    except OSError:
        os.execv(python, [python, *arguments])
    # The end of this process closes the connection: then the server ends the process that it has forked.
    code = connection.recv(1)
    os._exit(code[0] if code else 1)


if __name__ == "__main__":
    main()
