//! Development only: builders, the oracle and fault schedules.
