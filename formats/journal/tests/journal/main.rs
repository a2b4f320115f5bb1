//! A journal from the outside: written through its own door, damaged by hand, read by its own door.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod crafted;
mod damage;
mod earlier;
mod live;
mod machine;
mod support;
mod whole;
