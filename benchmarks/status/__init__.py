"""The status of queries under load: whether the lag that is shown is the lag that there is."""
