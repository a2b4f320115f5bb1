//! The functions of CUDA's driver that a launch needs, from the library that torch has loaded.
#![expect(unsafe_code, reason = "foreign functions")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

/// `CUresult`: 0 is success.
type Code = c_int;
/// `CUcontext`, `CUmodule`, `CUfunction`, `CUstream`: opaque pointers.
pub(crate) type Handle = usize;

const LIBRARY: &str = "libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];

/// The driver functions, with the names and signatures of `cuda.h`, which are unchanged since CUDA 7.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Api {
    pub device_get: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    pub device_get_attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code,
    pub device_primary_ctx_retain: unsafe extern "C" fn(*mut Handle, c_int) -> Code,
    pub ctx_push_current: unsafe extern "C" fn(Handle) -> Code,
    pub ctx_pop_current: unsafe extern "C" fn(*mut Handle) -> Code,
    pub module_load_data: unsafe extern "C" fn(*mut Handle, *const c_void) -> Code,
    pub module_get_function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Code,
    pub launch_kernel: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Code,
    pub get_error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
}

/// Error of the driver or of loading it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The library cannot be loaded.
    #[error("cannot load `{LIBRARY}`: {message}")]
    Missing { message: String },
    /// A driver function failed.
    #[error("{call} failed: {name}")]
    Failed { call: &'static str, name: String },
    /// A compiled kernel of this crate is malformed.
    #[error("cannot read the compiled kernel that begins with `{start}`")]
    Unreadable { start: String },
}

impl Refusal {
    pub(crate) fn unreadable(text: &str) -> Self {
        Self::Unreadable { start: text.lines().next().unwrap_or_default().to_owned() }
    }
}

impl Api {
    /// Loads the functions of this process's driver. The library stays loaded, because torch uses it too.
    pub(crate) fn load() -> Result<Self, Refusal> {
        let missing = |error: libloading::Error| Refusal::Missing { message: error.to_string() };
        // SAFETY: torch runs the same initialisers of the driver; no other library has this name.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | RTLD_LOCAL) }.map_err(missing)?;
        // SAFETY: the signatures match cuda.h.
        let api = unsafe {
            Self {
                device_get: *library.get(b"cuDeviceGet\0").map_err(missing)?,
                device_get_attribute: *library.get(b"cuDeviceGetAttribute\0").map_err(missing)?,
                device_primary_ctx_retain: *library.get(b"cuDevicePrimaryCtxRetain\0").map_err(missing)?,
                ctx_push_current: *library.get(b"cuCtxPushCurrent_v2\0").map_err(missing)?,
                ctx_pop_current: *library.get(b"cuCtxPopCurrent_v2\0").map_err(missing)?,
                module_load_data: *library.get(b"cuModuleLoadData\0").map_err(missing)?,
                module_get_function: *library.get(b"cuModuleGetFunction\0").map_err(missing)?,
                launch_kernel: *library.get(b"cuLaunchKernel\0").map_err(missing)?,
                get_error_name: *library.get(b"cuGetErrorName\0").map_err(missing)?,
            }
        };
        std::mem::forget(library);
        Ok(api)
    }

    fn check(&self, call: &'static str, code: Code) -> Result<(), Refusal> {
        if code == 0 {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the driver stores a static string, or leaves the pointer unchanged.
        let named = unsafe { (self.get_error_name)(code, &raw mut name) };
        let name = if named == 0 && !name.is_null() {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            format!("error {code}")
        };
        Err(Refusal::Failed { call, name })
    }

    /// Returns the handle of the device with torch's number.
    pub(crate) fn device(&self, number: u32) -> Result<c_int, Refusal> {
        let mut device = 0;
        // SAFETY: writes an int.
        self.check("cuDeviceGet", unsafe { (self.device_get)(&raw mut device, number.cast_signed()) })?;
        Ok(device)
    }

    /// Returns the compute capability: major, minor.
    pub(crate) fn capability(&self, device: c_int) -> Result<[c_int; 2], Refusal> {
        let mut found = [0; 2];
        for (number, attribute) in found.iter_mut().zip(CAPABILITY) {
            // SAFETY: writes an int.
            let code = unsafe { (self.device_get_attribute)(&raw mut *number, attribute, device) };
            self.check("cuDeviceGetAttribute", code)?;
        }
        Ok(found)
    }

    /// Retains the context that torch uses until the process ends.
    pub(crate) fn primary_context(&self, device: c_int) -> Result<Handle, Refusal> {
        let mut context = 0;
        // SAFETY: writes a handle.
        let code = unsafe { (self.device_primary_ctx_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(context)
    }

    /// Runs `body` with `context` as this thread's context, then restores the previous one.
    pub(crate) fn within<R>(&self, context: Handle, body: impl FnOnce() -> Result<R, Refusal>) -> Result<R, Refusal> {
        // SAFETY: the context is from `primary_context`.
        self.check("cuCtxPushCurrent", unsafe { (self.ctx_push_current)(context) })?;
        let result = body();
        let mut popped = 0;
        // SAFETY: writes a handle; pops the context pushed above.
        let code = unsafe { (self.ctx_pop_current)(&raw mut popped) };
        let value = result?;
        self.check("cuCtxPopCurrent", code)?;
        Ok(value)
    }

    /// Compiles a PTX text in the current context and returns one of its functions.
    pub(crate) fn function(&self, text: &CStr, name: &CStr) -> Result<Handle, Refusal> {
        let (mut module, mut function) = (0, 0);
        // SAFETY: the text is null-terminated, and the driver copies it.
        self.check("cuModuleLoadData", unsafe { (self.module_load_data)(&raw mut module, text.as_ptr().cast()) })?;
        // SAFETY: the module was just loaded and is never unloaded.
        let code = unsafe { (self.module_get_function)(&raw mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    /// Launches a function in the current context with `blocks` blocks.
    ///
    /// # Safety
    /// The arguments match the function's parameters. The device memory they point to stays valid until the stream has run
    /// the launch.
    pub(crate) unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        [threads, shared]: [u32; 2],
        stream: Handle,
        arguments: &mut [*mut c_void],
    ) -> Result<(), Refusal> {
        let (arguments, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: guaranteed by the caller; the driver copies the arguments before it returns.
        let code =
            unsafe { (self.launch_kernel)(function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments, extra) };
        self.check("cuLaunchKernel", code)
    }
}
