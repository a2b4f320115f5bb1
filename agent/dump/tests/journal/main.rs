//! A journal from the outside: written through its own door, damaged by hand, read by its own door.

mod damage;
mod live;
mod machine;
mod support;
mod whole;
