//! Torch's observers of operators: the inputs and outputs of each call and of its backward.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use torch_sys::C_tensor;

use super::{TensorRef, check};

/// Defined in shim/record.cpp.
#[repr(C)]
pub(crate) struct RawValues {
    opaque: [u8; 0],
}

/// Mirrors `Value` in shim/record.cpp.
#[repr(C)]
struct RawValue {
    kind: u8,
    /// The value of a boolean or integer; for a tensor, whether it requires a gradient.
    integer: i64,
    real: f64,
    /// The bytes of a text or a device; for a tensor, its dtype.
    text: *const u8,
    length: usize,
    tensor: *const C_tensor,
}

/// Mirrors `Observer` in shim/record.cpp.
#[repr(C)]
struct RawObserver {
    begin: extern "C" fn(*const u8, usize, *const u8, usize, *const u8, usize, *const RawValues) -> *mut c_void,
    end: extern "C" fn(*mut c_void, *const RawValues) -> *mut c_void,
    backward: extern "C" fn(*mut c_void, *const RawValues, *const RawValues),
    drop_backward: extern "C" fn(*mut c_void),
}

#[expect(unsafe_code, reason = "declared here, defined in shim/record.cpp")]
unsafe extern "C" {
    fn tmn_record_walk(
        values: *const RawValues,
        take: extern "C" fn(*mut c_void, *const RawValue),
        to: *mut c_void,
    ) -> *mut c_char;
    fn tmn_record_start(observer: *const RawObserver, handle: *mut u64) -> *mut c_char;
    fn tmn_record_stop(handle: u64) -> *mut c_char;
    safe fn tmn_record_pause();
    safe fn tmn_record_go_on();
}

/// Runs `body` while the observers are paused in this thread.
pub(crate) fn unobserved<R>(body: impl FnOnce() -> R) -> R {
    struct GoOn;
    impl Drop for GoOn {
        fn drop(&mut self) {
            tmn_record_go_on();
        }
    }
    tmn_record_pause();
    let _go_on = GoOn;
    body()
}

/// A value of an operator. The values of a list come between `BeginList` and `EndList`.
#[derive(Clone, Copy)]
pub(crate) enum Value<'v> {
    BeginList,
    EndList,
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'v str),
    Device(&'v str),
    /// `dtype` is the name in C++, such as `Float`.
    Tensor {
        tensor: TensorRef<'v>,
        requires_grad: bool,
        dtype: &'v str,
    },
}

type ValueSink<'s> = &'s mut dyn FnMut(Value<'_>);

/// The inputs or the outputs of an operator.
#[derive(Clone, Copy)]
pub(crate) struct OperatorValues<'v> {
    raw: &'v RawValues,
}

impl OperatorValues<'_> {
    /// Passes each value to `sink`, in order.
    #[expect(unsafe_code, reason = "a foreign call that calls back")]
    pub(crate) fn walk(self, mut sink: ValueSink<'_>) -> Result<(), String> {
        // `take` gets the address of this fat reference.
        let to = &raw mut sink;
        // SAFETY: the values live as long as `self`; the sink is borrowed exclusively for the call.
        check(unsafe { tmn_record_walk(self.raw, take, to.cast()) })
    }
}

/// Receives every operator call of every thread.
pub(crate) trait OperatorObserver: Send + Sync + 'static {
    /// Called before an operator. Returns `None` if neither the call nor the calls within it are captured. `name` is
    /// like `mm`; `overload` may be empty.
    fn begin(&self, space: &str, name: &str, overload: &str, inputs: OperatorValues<'_>) -> Option<CallData>;
    /// Called after an operator. Returns `None` if its backward is not captured.
    fn end(&self, call: CallData, outputs: OperatorValues<'_>) -> Option<CallData>;
    /// Called after an operator's backward, which may run several times.
    fn backward(&self, data: &CallData, inputs: OperatorValues<'_>, outputs: OperatorValues<'_>);
}

/// The data that an observer keeps for a call or its backward.
#[derive(Debug)]
pub(crate) struct CallData {
    /// The number of the capture: a graph may outlive the capture that hooked it.
    pub(crate) owner: u64,
    /// The entry's name.
    pub(crate) name: String,
    /// Whether the entry is captured.
    pub(crate) is_captured: bool,
}

static OBSERVER: std::sync::RwLock<Option<std::sync::Arc<dyn OperatorObserver>>> = std::sync::RwLock::new(None);

/// The running observers, which stop when it is dropped.
#[derive(Debug)]
pub(crate) struct Recording {
    handle: u64,
}

impl Recording {
    /// Starts observing. Fails if another capture is running or libtorch reports an error.
    #[expect(unsafe_code, reason = "a foreign call")]
    pub(crate) fn start(observer: std::sync::Arc<dyn OperatorObserver>) -> Result<Self, String> {
        let mut current = OBSERVER.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.is_some() {
            return Err("another capture is running".to_owned());
        }
        *current = Some(observer);
        drop(current);
        let functions = RawObserver { begin, end, backward, drop_backward };
        let mut handle = 0;
        // SAFETY: the functions live as long as the program, the result is writable.
        let started = check(unsafe { tmn_record_start(&raw const functions, &raw mut handle) });
        if let Err(message) = started {
            forget_observer();
            return Err(message);
        }
        Ok(Self { handle })
    }
}

impl Drop for Recording {
    #[expect(unsafe_code, reason = "a foreign call")]
    fn drop(&mut self) {
        // SAFETY: the handle comes from `start` and is released once.
        let _stopped = check(unsafe { tmn_record_stop(self.handle) }).is_ok();
        forget_observer();
    }
}

fn forget_observer() {
    *OBSERVER.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
}

/// Runs `body` with the observer and catches panics, which must not reach the calling C++ code.
fn observed<R>(body: impl FnOnce(&dyn OperatorObserver) -> Option<R>) -> Option<R> {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let observer = OBSERVER.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()?;
        body(&*observer)
    }));
    caught.unwrap_or_else(|payload| {
        // Dropping a payload may panic again.
        std::mem::forget(payload);
        None
    })
}

#[expect(unsafe_code, reason = "text and values are the shim's, for the call")]
extern "C" fn begin(
    space: *const u8,
    space_length: usize,
    name: *const u8,
    name_length: usize,
    overload: *const u8,
    overload_length: usize,
    inputs: *const RawValues,
) -> *mut c_void {
    // SAFETY: the shim gives pointer and length of one text each, and values that live during the call.
    let (space, name, overload, raw) =
        unsafe { (text(space, space_length), text(name, name_length), text(overload, overload_length), &*inputs) };
    let call = observed(|observer| observer.begin(&space, &name, &overload, OperatorValues { raw }));
    call.map_or(std::ptr::null_mut(), |call| Box::into_raw(Box::new(call)).cast())
}

#[expect(unsafe_code, reason = "the data is what `begin` gave")]
extern "C" fn end(call: *mut c_void, outputs: *const RawValues) -> *mut c_void {
    // SAFETY: the shim gives back each call of `begin` once; the values live during the call.
    let (call, raw) = unsafe { (Box::from_raw(call.cast::<CallData>()), &*outputs) };
    let backward = observed(|observer| observer.end(*call, OperatorValues { raw }));
    backward.map_or(std::ptr::null_mut(), |data| Box::into_raw(Box::new(data)).cast())
}

#[expect(unsafe_code, reason = "the data is what `end` gave")]
extern "C" fn backward(data: *mut c_void, inputs: *const RawValues, outputs: *const RawValues) {
    // SAFETY: the data lives until `drop_backward`; the values live during the call.
    let (data, inputs, outputs) = unsafe { (&*data.cast::<CallData>(), &*inputs, &*outputs) };
    observed(|observer| {
        observer.backward(data, OperatorValues { raw: inputs }, OperatorValues { raw: outputs });
        Some(())
    });
}

#[expect(unsafe_code, reason = "the data is what `end` gave")]
extern "C" fn drop_backward(data: *mut c_void) {
    // SAFETY: the shim drops each once, last.
    drop(unsafe { Box::from_raw(data.cast::<CallData>()) });
}

/// # Safety
/// `bytes` has `length` bytes.
#[expect(unsafe_code, reason = "a C++ text")]
unsafe fn text<'t>(bytes: *const u8, length: usize) -> std::borrow::Cow<'t, str> {
    if length == 0 {
        return "".into();
    }
    // SAFETY: the caller meets the requirement.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(bytes, length) })
}

/// Passes a value to the sink and catches its panics.
#[expect(unsafe_code, reason = "the value is the shim's, the sink that of `walk`")]
extern "C" fn take(to: *mut c_void, value: *const RawValue) {
    // SAFETY: the value and its text live for the call; `walk` gave the address of its reference, borrowed for the walk.
    let (value, sink) = unsafe { (&*value, &mut *to.cast::<ValueSink<'_>>()) };
    // SAFETY: as above.
    let text = unsafe { text(value.text, value.length) };
    // In the order of `Kind` in shim/record.cpp.
    let value = match value.kind {
        0 => Value::BeginList,
        1 => Value::EndList,
        2 => Value::Bool(value.integer != 0),
        3 => Value::Int(value.integer),
        4 => Value::Float(value.real),
        5 => Value::Text(&text),
        6 => Value::Device(&text),
        7 => TensorRef::from_raw(value.tensor).map_or(Value::Null, |tensor| Value::Tensor {
            tensor,
            requires_grad: value.integer != 0,
            dtype: &text,
        }),
        _ => Value::Null,
    };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| sink(value))) {
        std::mem::forget(payload);
    }
}
