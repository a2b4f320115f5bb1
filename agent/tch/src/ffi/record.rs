//! Torch's observers of operators: each call, what goes in and what comes out, and its backward.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use torch_sys::C_tensor;

use super::{TensorRef, check};

/// Defined in shim/record.cpp.
#[repr(C)]
pub(crate) struct RawValues {
    opaque: [u8; 0],
}

/// Mirrors `Sink` in shim/record.cpp.
#[repr(C)]
struct RawSink {
    begin_list: extern "C" fn(*mut c_void),
    end_list: extern "C" fn(*mut c_void),
    null: extern "C" fn(*mut c_void),
    boolean: extern "C" fn(*mut c_void, u8),
    integer: extern "C" fn(*mut c_void, i64),
    real: extern "C" fn(*mut c_void, f64),
    text: extern "C" fn(*mut c_void, *const u8, usize),
    device: extern "C" fn(*mut c_void, *const u8, usize),
    tensor: extern "C" fn(*mut c_void, *const C_tensor, u8, *const u8, usize),
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
    fn tmn_record_walk(values: *const RawValues, sink: *const RawSink, to: *mut c_void) -> *mut c_char;
    fn tmn_record_start(observer: *const RawObserver, handle: *mut u64) -> *mut c_char;
    fn tmn_record_stop(handle: u64) -> *mut c_char;
    safe fn tmn_record_pause();
    safe fn tmn_record_go_on();
}

/// Runs what is ours: no observer sees the operators it calls in this thread.
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

/// Takes an operator's values, one after the other.
pub(crate) trait ValueSink {
    fn begin_list(&mut self);
    fn end_list(&mut self);
    fn null(&mut self);
    fn bool(&mut self, value: bool);
    fn int(&mut self, value: i64);
    fn float(&mut self, value: f64);
    fn text(&mut self, value: &str);
    fn device(&mut self, value: &str);
    /// `dtype` is the name in C++: `Float`.
    fn tensor(&mut self, tensor: TensorRef<'_>, requires_grad: bool, dtype: &str);
}

/// What goes into an operator or comes out of it.
#[derive(Clone, Copy)]
pub(crate) struct OperatorValues<'v> {
    raw: &'v RawValues,
}

impl OperatorValues<'_> {
    /// Shows each value to the sink.
    #[expect(unsafe_code, reason = "a foreign call that calls back")]
    pub(crate) fn walk(self, mut sink: &mut dyn ValueSink) -> Result<(), String> {
        // The functions below get the address of this fat reference.
        let to: *mut &mut dyn ValueSink = &raw mut sink;
        // SAFETY: the values live as long as `self`; the sink is borrowed for the call, and nobody else uses it.
        check(unsafe { tmn_record_walk(self.raw, &raw const SINK, to.cast()) })
    }
}

/// Hears of every operator of every thread.
pub(crate) trait OperatorObserver: Send + Sync + 'static {
    /// One begins. `None`: it is not captured, nor what runs in it. `name` is like `mm`, `overload` may be empty.
    fn begin(&self, space: &str, name: &str, overload: &str, inputs: OperatorValues<'_>) -> Option<CallData>;
    /// It has ended. `None`: its backward is not captured.
    fn end(&self, call: CallData, outputs: OperatorValues<'_>) -> Option<CallData>;
    /// Its backward has run; it may run again.
    fn backward(&self, data: &CallData, inputs: OperatorValues<'_>, outputs: OperatorValues<'_>);
}

/// What an observer keeps of a call, or of its backward.
#[derive(Debug)]
pub(crate) struct CallData {
    /// Whose it is: a graph may outlive the capture that hooked it.
    pub(crate) owner: u64,
    /// The entry's name.
    pub(crate) name: String,
    /// Whether the entry is captured.
    pub(crate) is_captured: bool,
}

static OBSERVER: std::sync::RwLock<Option<std::sync::Arc<dyn OperatorObserver>>> = std::sync::RwLock::new(None);

/// The observers at work; they stop when it is dropped.
#[derive(Debug)]
pub(crate) struct Recording {
    handle: u64,
}

impl Recording {
    /// Observes from now on. `Err`: somebody observes already, or libtorch refuses.
    #[expect(unsafe_code, reason = "a foreign call")]
    pub(crate) fn start(observer: std::sync::Arc<dyn OperatorObserver>) -> Result<Self, String> {
        let mut current = OBSERVER.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.is_some() {
            return Err("another capture is at work".to_owned());
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
        // SAFETY: the handle is that of `start`, given back once.
        let _stopped = check(unsafe { tmn_record_stop(self.handle) }).is_ok();
        forget_observer();
    }
}

fn forget_observer() {
    *OBSERVER.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
}

/// Runs `body` with the observer. No panic passes: C++ is below.
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
    // SAFETY: the caller's.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(bytes, length) })
}

static SINK: RawSink = RawSink {
    begin_list: sink_begin_list,
    end_list: sink_end_list,
    null: sink_null,
    boolean: sink_bool,
    integer: sink_int,
    real: sink_float,
    text: sink_text,
    device: sink_device,
    tensor: sink_tensor,
};

/// Gives a value to the sink; a panic ends with it.
#[expect(unsafe_code, reason = "the data is that of `walk`")]
fn put(to: *mut c_void, body: impl FnOnce(&mut dyn ValueSink)) {
    // SAFETY: `walk` gave the address of its reference, borrowed for the walk.
    let sink = unsafe { &mut *to.cast::<&mut dyn ValueSink>() };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(*sink))) {
        std::mem::forget(payload);
    }
}

extern "C" fn sink_begin_list(to: *mut c_void) {
    put(to, |sink| sink.begin_list());
}

extern "C" fn sink_end_list(to: *mut c_void) {
    put(to, |sink| sink.end_list());
}

extern "C" fn sink_null(to: *mut c_void) {
    put(to, |sink| sink.null());
}

extern "C" fn sink_bool(to: *mut c_void, value: u8) {
    put(to, |sink| sink.bool(value != 0));
}

extern "C" fn sink_int(to: *mut c_void, value: i64) {
    put(to, |sink| sink.int(value));
}

extern "C" fn sink_float(to: *mut c_void, value: f64) {
    put(to, |sink| sink.float(value));
}

#[expect(unsafe_code, reason = "a C++ text")]
extern "C" fn sink_text(to: *mut c_void, bytes: *const u8, length: usize) {
    // SAFETY: the shim gives pointer and length of one text.
    let value = unsafe { text(bytes, length) };
    put(to, |sink| sink.text(&value));
}

#[expect(unsafe_code, reason = "a C++ text")]
extern "C" fn sink_device(to: *mut c_void, bytes: *const u8, length: usize) {
    // SAFETY: as above.
    let value = unsafe { text(bytes, length) };
    put(to, |sink| sink.device(&value));
}

#[expect(unsafe_code, reason = "a C++ text")]
extern "C" fn sink_tensor(
    to: *mut c_void,
    tensor: *const C_tensor,
    requires_grad: u8,
    dtype: *const u8,
    length: usize,
) {
    // SAFETY: as above.
    let dtype = unsafe { text(dtype, length) };
    put(to, |sink| match TensorRef::from_raw(tensor) {
        Some(tensor) => sink.tensor(tensor, requires_grad != 0, &dtype),
        None => sink.null(),
    });
}
