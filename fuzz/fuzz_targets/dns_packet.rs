//! Any octets as a DNS packet: never a panic, never an answer longer than the transport takes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| tombolo_dns::fuzz::packet(packet));
