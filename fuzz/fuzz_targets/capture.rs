#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trainmon_fuzz::capture(bytes));
