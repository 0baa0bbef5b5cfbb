//! The pure model: names, records, merge, packing and the engine.
