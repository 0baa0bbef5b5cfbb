//! Compiles the value schema of the registry.

use std::error::Error;

const SCHEMA: &str = "proto/tombolo/registry/v1/values.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-env-changed=PROTOC");
    prost_build::Config::new()
        // Maps in key order, so that equal records have equal bytes.
        .btree_map(["."])
        .compile_protos(&[SCHEMA], &["proto"])
        .map_err(|error| {
            format!(
                "{SCHEMA} was not compiled: {error}\n\
                 If protoc is missing, install the packages protobuf-compiler and \
                 libprotobuf-dev (Debian, Ubuntu), or set PROTOC to its path."
            )
        })?;
    Ok(())
}
