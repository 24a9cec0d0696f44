"""The log, compared with the limits of the hardware and with its peers."""
