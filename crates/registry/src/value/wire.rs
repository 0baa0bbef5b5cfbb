//! The messages of the schema, as prost generates them.

#![expect(
    unreachable_pub,
    unnameable_types,
    clippy::derive_partial_eq_without_eq,
    clippy::doc_markdown,
    clippy::struct_field_names,
    clippy::trivially_copy_pass_by_ref,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/tombolo.registry.v1.rs"));
