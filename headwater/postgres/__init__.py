"""Writing to PostgreSQL: rows by COPY, which sinks and views share, and transactions over a log and a database."""

from headwater.postgres.two_phase import Resolved, TransactionsDiverged, TwoPhaseCommit, TwoPhaseTransaction

__all__ = ["Resolved", "TransactionsDiverged", "TwoPhaseCommit", "TwoPhaseTransaction"]
