//! The JSON messages of the wire: types and codec.
