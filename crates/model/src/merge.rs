//! The merge of all clusters' records of one service (BEHAVIOUR §2).

/// What an import is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {}
