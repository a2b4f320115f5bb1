//! Where two runs first part.
