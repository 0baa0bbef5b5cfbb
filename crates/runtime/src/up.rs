//! `tombolo up`.
use crate::{args::UpArgs, exit::Exit, input::Refusal};
pub(crate) async fn run(_args: UpArgs) -> Result<Exit, Refusal> {
    Ok(Exit::Well)
}
