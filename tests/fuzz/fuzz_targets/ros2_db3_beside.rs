#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice_fuzz_targets::ros2_db3_beside(bytes));
