//! What the driver is called with, by a driver that writes it down.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint};

use trainmon_core::Dtype;

use super::*;
use crate::cache::Tables;
use crate::table::{CHUNK, Row, Shows, Spread};

thread_local! {
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static CAPABILITY: RefCell<[c_int; 2]> = const { RefCell::new([9, 0]) };
    static FAILS: RefCell<Option<&'static str>> = const { RefCell::new(None) };
    static MODULES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

const CONTEXT: Handle = 77;

fn say(what: String) -> c_int {
    let fails = FAILS.with_borrow(|fails| fails.is_some_and(|call| what.starts_with(call)));
    SAID.with_borrow_mut(|said| said.push(what));
    if fails { 700 } else { 0 }
}

fn said() -> Vec<String> {
    SAID.take()
}

unsafe extern "C" fn device_get(device: *mut c_int, number: c_int) -> c_int {
    // SAFETY: as the driver.
    unsafe { device.write(number + 10) };
    say(format!("device {number}"))
}

unsafe extern "C" fn device_get_attribute(value: *mut c_int, attribute: c_int, _device: c_int) -> c_int {
    // SAFETY: as the driver.
    unsafe { value.write(CAPABILITY.with_borrow(|found| found[usize::from(attribute == 76)])) };
    0
}

unsafe extern "C" fn retain(context: *mut Handle, device: c_int) -> c_int {
    // SAFETY: as the driver.
    unsafe { context.write(CONTEXT) };
    say(format!("retain {device}"))
}

unsafe extern "C" fn push(context: Handle) -> c_int {
    say(format!("push {context}"))
}

unsafe extern "C" fn pop(context: *mut Handle) -> c_int {
    // SAFETY: as the driver.
    unsafe { context.write(CONTEXT) };
    say("pop".to_owned())
}

unsafe extern "C" fn load(module: *mut Handle, text: *const c_void) -> c_int {
    // SAFETY: a text that ends with a zero.
    let text = unsafe { CStr::from_ptr(text.cast()) }.to_string_lossy().into_owned();
    MODULES.with_borrow_mut(|modules| {
        modules.push(text);
        // SAFETY: as the driver.
        unsafe { module.write(modules.len()) };
    });
    say("load".to_owned())
}

/// A handle that tells which entry of which text it is.
unsafe extern "C" fn get_function(function: *mut Handle, module: Handle, name: *const c_char) -> c_int {
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let has_it = MODULES.with_borrow(|modules| modules[module - 1].contains(&format!(".visible .entry {name}(")));
    // SAFETY: as the driver.
    unsafe { function.write(100 + module) };
    if has_it { 0 } else { 500 }
}

unsafe extern "C" fn launch(
    function: Handle,
    blocks: c_uint,
    _y: c_uint,
    _z: c_uint,
    threads: c_uint,
    _ty: c_uint,
    _tz: c_uint,
    shared: c_uint,
    stream: Handle,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    let text = MODULES.with_borrow(|modules| modules[function - 101].clone());
    // What the text declares is what is read.
    let head = text.split(')').next().unwrap_or_default();
    let read = head.lines().filter(|line| line.contains(".param")).enumerate().map(|(place, line)| {
        // SAFETY: as many arguments as parameters, each as wide as declared.
        let at = unsafe { arguments.add(place).read() };
        if line.contains(".u32") {
            // SAFETY: as above.
            unsafe { at.cast::<u32>().read() }.to_string()
        } else if line.contains(".f64") {
            // SAFETY: as above.
            format!("{:?}", unsafe { at.cast::<f64>().read() })
        } else {
            // SAFETY: as above.
            unsafe { at.cast::<u64>().read() }.to_string()
        }
    });
    let read = read.collect::<Vec<_>>().join(" ");
    say(format!("launch {} x{blocks} of {threads}, {shared} bytes, stream {stream}: {read}", function - 100))
}

unsafe extern "C" fn error_name(code: c_int, name: *mut *const c_char) -> c_int {
    if code == 700 {
        // SAFETY: as the driver.
        unsafe { name.write(c"CUDA_ERROR_ILLEGAL_ADDRESS".as_ptr()) };
        return 0;
    }
    1
}

const API: Api = Api {
    device_get,
    device_get_attribute,
    device_primary_ctx_retain: retain,
    ctx_push_current: push,
    ctx_pop_current: pop,
    module_load_data: load,
    module_get_function: get_function,
    launch_kernel: launch,
    get_error_name: error_name,
};

fn kernels() -> Result<Kernels, LaunchError> {
    let kernels = Kernels::with(API, 3)?;
    let loads = said();
    assert_eq!(
        loads,
        ["device 3", "retain 13", "push 77", "load", "load", "load", "load", "load", "load", "load", "pop"]
    );
    Ok(kernels)
}

fn row(address: u64, elements: u64) -> Row {
    Row {
        address,
        spread: Spread::dense(elements),
        dtype: Dtype::F32,
        other: None,
        shows: Shows::Values,
        eps: None,
        std: false,
    }
}

fn of(rows: &[Row], factor: Factor) -> Statistics {
    Statistics { table: Tables::default().of(rows), words: 1000, found: 2000, out: 3000, factor }
}

#[test]
fn tensors_are_measured_with_two_launches_however_many_there_are() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    let rows: Vec<_> = (0..2000).map(|at| row(at * 4096, CHUNK + 1)).collect();
    // SAFETY: the driver above reads no address.
    let launches = unsafe { kernels.measure(&of(&rows, Factor::Number(0.5)), 5) }?;
    assert_eq!(launches, 2);
    let chunks = 1000 + 2000 * 72;
    assert_eq!(
        said(),
        [
            "push 77".to_owned(),
            format!("launch 1 x4000 of 128, 32 bytes, stream 5: 1000 {chunks} 2000 0 4000 0 0 0.5 0 0"),
            "launch 3 x2000 of 128, 32 bytes, stream 5: 1000 2000 4000 3000 0 0 0.5 0 0".to_owned(),
            "pop".to_owned(),
        ]
    );
    Ok(())
}

#[test]
fn pairs_take_one_more_and_empty_tensors_none() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    let pair = Row { other: Some((8, Dtype::F64)), shows: Shows::Agreement, ..row(16, 3) };
    // SAFETY: as above.
    let launches = unsafe { kernels.measure(&of(&[row(64, 2), pair, row(0, 0)], Factor::Float32At(44)), 0) }?;
    assert_eq!(launches, 3);
    let table = 1000 + 3 * 72;
    assert_eq!(
        said()[1..4],
        [
            format!("launch 1 x1 of 128, 32 bytes, stream 0: 1000 {table} 2000 0 2 44 1 0.0 0 0"),
            format!("launch 2 x1 of 128, 32 bytes, stream 0: 1000 {table} 2000 1 2 44 1 0.0 0 0"),
            "launch 3 x3 of 128, 32 bytes, stream 0: 1000 2000 2 3000 44 1 0.0 0 0".to_owned(),
        ]
    );
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.measure(&of(&[row(0, 0)], Factor::Float64At(44)), 0) }?, 1);
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.measure(&of(&[], Factor::Number(1.0)), 0) }?, 0);
    Ok(())
}

#[test]
fn one_tensor_is_measured_without_a_table() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    let [words, chunks, found, out] = [1000, 1500, 2000, 3000];
    let of = |row, factor| One { row, words, chunks, found, out, factor };
    let eps = Row { eps: Some(1.0), std: true, ..row(64, CHUNK + 1) };
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.measure_one(&of(eps, Factor::Number(0.5)), 5) }?, 3);
    let [codes, elements, bound] = [3 << 24, CHUNK + 1, 1.0_f64.to_bits()];
    assert_eq!(
        said()[1..4],
        [
            format!("launch 7 x1 of 128, 0 bytes, stream 5: 1000 64 0 {elements} {codes} 0 {bound} {elements} 0 1 0 0"),
            "launch 1 x2 of 128, 32 bytes, stream 5: 1000 1500 2000 0 2 0 0 0.5 0 0".to_owned(),
            "launch 3 x1 of 128, 32 bytes, stream 5: 1000 2000 2 3000 0 0 0.5 0 0".to_owned(),
        ]
    );
    let pair = Row { other: Some((8, Dtype::F64)), shows: Shows::Agreement, ..row(16, 3) };
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.measure_one(&of(pair, Factor::Float32At(44)), 0) }?, 3);
    assert_eq!(said()[2], "launch 2 x1 of 128, 32 bytes, stream 0: 1000 1500 2000 0 1 44 1 0.0 0 0");
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.measure_one(&of(row(0, 0), Factor::Number(1.0)), 0) }?, 2);
    Ok(())
}

#[test]
fn fingerprints_take_two() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    let words = Words { rows: 1, tensors: 2, chunks: 3, count: 4, sums: 5, out: 6 };
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.fingerprint(&words, 9) }?, 2);
    assert_eq!(
        said()[1..3],
        ["launch 4 x4 of 128, 32 bytes, stream 9: 1 3 5 0 0", "launch 5 x2 of 128, 32 bytes, stream 9: 1 5 6 0 0"]
    );
    Ok(())
}

#[test]
fn copies_take_one() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    let copied = |at: u64| Row { other: Some((at + 8, Dtype::F32)), shows: Shows::Copy, ..row(at, CHUNK + 1) };
    let table = Tables::default().of(&[copied(1 << 20), copied(1 << 30), copied(1 << 40)]);
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.copy(table, 1000, 9) }?, 1);
    assert_eq!(said()[1], format!("launch 6 x6 of 128, 8192 bytes, stream 9: 1000 {} 0 0", 1000 + 3 * 72));
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.copy(Tables::default().of(&[]), 1000, 9) }?, 0);
    Ok(())
}

#[test]
fn what_the_driver_refuses_is_told_and_the_context_given_back() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    FAILS.set(Some("launch"));
    // SAFETY: as above.
    let refused = unsafe { kernels.measure(&of(&[row(64, 2)], Factor::Number(1.0)), 0) };
    let text = refused.err().map(|error| error.to_string());
    assert_eq!(text.as_deref(), Some("cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(said().last().map(String::as_str), Some("pop"));
    FAILS.set(Some("load"));
    let text = Kernels::with(API, 0).err().map(|error| error.to_string());
    assert_eq!(text.as_deref(), Some("cuModuleLoadData failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(said().last().map(String::as_str), Some("pop"));
    Ok(())
}

#[test]
fn a_device_older_than_the_kernels_is_refused() {
    CAPABILITY.set([7, 5]);
    let text = Kernels::with(API, 0).err().map(|error| error.to_string());
    let expected = "this device has compute capability 7.5, but the kernels require at least 8.0";
    assert_eq!(text.as_deref(), Some(expected));
}

#[test]
fn without_a_driver_it_is_said() {
    if Api::load().is_err() {
        let text = Kernels::load(0).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.starts_with("cannot load `libcuda.so.1`: "), "{text}");
    }
}

#[test]
fn more_blocks_than_a_launch_takes_are_refused() -> Result<(), LaunchError> {
    let kernels = kernels()?;
    let words = Words { rows: 1, tensors: 1, chunks: 3, count: 1 << 31, sums: 5, out: 6 };
    // SAFETY: as above.
    let text = unsafe { kernels.fingerprint(&words, 0) }.err().map(|error| error.to_string());
    assert_eq!(text.as_deref(), Some("a launch of 2147483648 blocks exceeds the limit of 2147483647"));
    Ok(())
}
