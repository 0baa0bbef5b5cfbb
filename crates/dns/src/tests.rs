//! Tests of the answers: by rule, by case, against an oracle, and with hostile packets.

mod cases;
mod oracle;
mod packets;
mod rules;
mod sharing;
pub(crate) mod world;
