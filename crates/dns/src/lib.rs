//! DNS for the clusterset: a pure answer over a snapshot, and bounded listeners.
