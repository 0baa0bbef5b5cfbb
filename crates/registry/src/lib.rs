//! The registry: keys, values and backends through which clusters meet.
