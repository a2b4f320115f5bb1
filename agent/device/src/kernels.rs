//! The kernels of one device, loaded and launched.
#![expect(unsafe_code, reason = "addresses on a device")]

use std::ffi::{CString, c_void};

use crate::cache::Table;
use crate::driver::{Api, Handle, Refusal};
use crate::table::{ROW_WORDS, Row};

/// The compute capability that the kernels are compiled for: major, minor.
const LEAST_CAPABILITY: [i32; 2] = [8, 0];

/// The value of the two trailing parameters that Triton adds: addresses of its scratch memory, which the kernels do not use.
const UNUSED: u64 = 0;

/// The largest number of blocks in one launch.
const MOST_BLOCKS: u64 = i32::MAX as u64;
const MOST_ARGUMENTS: usize = 12;

/// Error of loading or launching the kernels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct LaunchError(#[from] Cause);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Driver(#[from] Refusal),
    #[error("this device has compute capability {0}.{1}, but the kernels require at least 8.0")]
    TooOld(i32, i32),
    #[error("a launch of {0} blocks exceeds the limit of {MOST_BLOCKS}")]
    TooLarge(u64),
}

impl From<Refusal> for LaunchError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.into())
    }
}

/// The factor that every value is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// A number that the host knows.
    Number(f64),
    /// A float32 at an address on the device.
    Float32At(u64),
    /// A float64 at an address on the device.
    Float64At(u64),
}

impl Factor {
    /// The kernels' three parameters: an address, the type stored there, a number.
    const fn words(self) -> [u64; 3] {
        match self {
            Self::Number(number) => [0, 0, number.to_bits()],
            Self::Float32At(address) => [address, 1, 0],
            Self::Float64At(address) => [address, 2, 0],
        }
    }
}

/// The table and the device memory of a measurement of many tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The table from [`Tables`](crate::Tables).
    pub table: Table,
    /// The device address of the table's words.
    pub words: u64,
    /// The address of memory for the chunks' results: [`FOUND_COLUMNS`](crate::FOUND_COLUMNS) float64 per chunk.
    pub found: u64,
    /// The address of the results: eight float64 per row.
    pub out: u64,
    /// The factor that the first five results are multiplied by, and eps is divided by.
    pub factor: Factor,
}

/// The tensor and the device memory of a measurement of one tensor, which needs no table on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct One {
    /// The tensor.
    pub row: Row,
    /// The address of memory for the row's nine words of 64 bits, which no other stream uses meanwhile.
    pub words: u64,
    /// The address of the numbers 0, 1, 2 …, a word of 64 bits for each of the row's chunks.
    pub chunks: u64,
    /// See [`Statistics::found`].
    pub found: u64,
    /// The address of the results: eight float64.
    pub out: u64,
    /// See [`Statistics::factor`].
    pub factor: Factor,
}

/// The device memory of a computation of fingerprints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Words {
    /// The address of four words per tensor: address, number of words, bytes of a word, index of its first chunk.
    pub rows: u64,
    /// The number of tensors.
    pub tensors: u64,
    /// The address of two words per chunk: the row (upper half) with the chunk's index in it (lower half), and the factor
    /// of its sum.
    pub chunks: u64,
    /// The number of chunks.
    pub count: u64,
    /// The address of memory for the chunks' sums: a word each.
    pub sums: u64,
    /// The address of the fingerprints: a word each.
    pub out: u64,
}

#[derive(Clone, Copy)]
struct Function {
    handle: Handle,
    threads: u32,
    shared: u32,
}

/// The kernels of one device.
pub struct Kernels {
    api: Api,
    context: Handle,
    partial: Function,
    partial_pairs: Function,
    join: Function,
    words: Function,
    join_words: Function,
    copies: Function,
    put: Function,
}

impl Kernels {
    /// Loads the kernels of the device with torch's number. At the first load on a machine, the driver compiles them, which
    /// takes a second or two, and caches the result on disk.
    ///
    /// # Errors
    /// There is no driver, it rejects the kernels, or the device is too old for them.
    pub fn load(device: u32) -> Result<Self, LaunchError> {
        Self::with(Api::load()?, device)
    }

    /// Like [`load`](Self::load), with the given driver functions.
    #[doc(hidden)]
    pub fn with(api: Api, device: u32) -> Result<Self, LaunchError> {
        let device = api.device(device)?;
        let capability = api.capability(device)?;
        if capability < LEAST_CAPABILITY {
            return Err(Cause::TooOld(capability[0], capability[1]).into());
        }
        let context = api.primary_context(device)?;
        Ok(api.within(context, || {
            let load = |text| Function::load(&api, text);
            Ok(Self {
                api,
                context,
                partial: load(include_str!("../kernels/compiled/partial.ptx"))?,
                partial_pairs: load(include_str!("../kernels/compiled/partial_pairs.ptx"))?,
                join: load(include_str!("../kernels/compiled/join.ptx"))?,
                words: load(include_str!("../kernels/compiled/words.ptx"))?,
                join_words: load(include_str!("../kernels/compiled/join_words.ptx"))?,
                copies: load(include_str!("../kernels/compiled/copies.ptx"))?,
                put: load(include_str!("../kernels/compiled/put.ptx"))?,
            })
        })?)
    }

    /// Launches the kernels that measure a table's tensors on the stream with this address. Returns the number of launches,
    /// at most three. The host does not wait for them. Cost: a few microseconds each.
    ///
    /// # Errors
    /// The driver rejects a launch; earlier launches write only into `found`.
    ///
    /// # Safety
    /// The addresses are those of device memory of the documented sizes and of allocated tensors. All of it stays valid until
    /// the stream has done the work, and no other stream uses `found` meanwhile.
    pub unsafe fn measure(&self, of: &Statistics, stream: u64) -> Result<u32, LaunchError> {
        let [factor, code, number] = of.factor.words();
        let chunks = of.words + of.table.bytes_of_rows();
        let total = of.table.chunks();
        let parts = [
            (self.partial, 0, of.table.single_chunks),
            (self.partial_pairs, of.table.single_chunks, of.table.pair_chunks),
        ];
        // `partial(table, chunks, found, first, total, factor, factor_code, factor_value)`
        let part = |first| [of.words, chunks, of.found, first, total, factor, code, number, UNUSED, UNUSED];
        // `join(table, found, total, out, factor, factor_code, factor_value)`
        let mut join = [of.words, of.found, total, of.out, factor, code, number, UNUSED, UNUSED];
        let mut parts = parts.map(|(function, first, count)| (function, count, part(first)));
        let [(single, singles, single_words), (pair, pairs, pair_words)] = &mut parts;
        self.launch_all(
            stream,
            [
                (*single, *singles, &mut single_words[..]),
                (*pair, *pairs, &mut pair_words[..]),
                (self.join, of.table.rows as u64, &mut join[..]),
            ],
        )
    }

    /// Like [`measure`](Self::measure), for one tensor: three launches, and no transfer to the device.
    ///
    /// # Errors
    /// See [`measure`](Self::measure).
    ///
    /// # Safety
    /// See [`measure`](Self::measure).
    pub unsafe fn measure_one(&self, of: &One, stream: u64) -> Result<u32, LaunchError> {
        let [factor, code, number] = of.factor.words();
        let total = of.row.chunks();
        let partial = if of.row.has_two() { self.partial_pairs } else { self.partial };
        // `put(table, …)`
        let mut put = [UNUSED; MOST_ARGUMENTS];
        put[0] = of.words;
        put[1..=ROW_WORDS].copy_from_slice(&of.row.words(0).map(i64::cast_unsigned));
        // The same parameters as in `measure`.
        let mut part = [of.words, of.chunks, of.found, 0, total, factor, code, number, UNUSED, UNUSED];
        let mut join = [of.words, of.found, total, of.out, factor, code, number, UNUSED, UNUSED];
        self.launch_all(
            stream,
            [(self.put, 1, &mut put[..]), (partial, total, &mut part[..]), (self.join, 1, &mut join[..])],
        )
    }

    /// Launches the kernels that compute fingerprints, without waiting for them; returns the number of launches.
    ///
    /// # Errors
    /// See [`measure`](Self::measure).
    ///
    /// # Safety
    /// See [`measure`](Self::measure); applies to `sums` instead of `found`.
    pub unsafe fn fingerprint(&self, of: &Words, stream: u64) -> Result<u32, LaunchError> {
        // `words(table, chunks, sums)`
        let mut words = [of.rows, of.chunks, of.sums, UNUSED, UNUSED];
        // `join_words(table, sums, out)`
        let mut join = [of.rows, of.sums, of.out, UNUSED, UNUSED];
        self.launch_all(stream, [(self.words, of.count, &mut words[..]), (self.join_words, of.tensors, &mut join[..])])
    }

    /// Copies the first tensor of each row of a table into the second, with one launch for all rows, without waiting for it.
    /// `words` is the device address of the table's words.
    ///
    /// # Errors
    /// See [`measure`](Self::measure).
    ///
    /// # Safety
    /// See [`measure`](Self::measure). Every row has two tensors of one dtype of up to 8 bytes, and no other stream uses the
    /// second ones meanwhile.
    pub unsafe fn copy(&self, table: Table, words: u64, stream: u64) -> Result<u32, LaunchError> {
        // `copies(table, chunks)`
        let mut copies = [words, words + table.bytes_before_pairs(), UNUSED, UNUSED];
        self.launch_all(stream, [(self.copies, table.pair_chunks, &mut copies[..])])
    }

    /// Launches the functions in order and skips those without blocks.
    fn launch_all<const N: usize>(
        &self,
        stream: u64,
        launches: [(Function, u64, &mut [u64]); N],
    ) -> Result<u32, LaunchError> {
        if let Some(&(_, count, _)) = launches.iter().find(|(_, count, _)| *count > MOST_BLOCKS) {
            return Err(Cause::TooLarge(count).into());
        }
        Ok(self.api.within(self.context, || {
            let mut made = 0;
            for (function, count, words) in launches {
                if count > 0 {
                    // The driver reads narrower parameters from the lower bytes.
                    let mut arguments = [std::ptr::null_mut::<c_void>(); MOST_ARGUMENTS];
                    for (argument, word) in arguments.iter_mut().zip(&mut *words) {
                        *argument = (&raw mut *word).cast();
                    }
                    let size = [function.threads, function.shared];
                    // SAFETY: the callers pass the parameters in order, and their own callers guarantee the addresses.
                    unsafe { self.api.launch(function.handle, count as u32, size, stream as Handle, &mut arguments) }?;
                    made += 1;
                }
            }
            Ok(made)
        })?)
    }
}

impl Function {
    /// Loads the function that the first line of a PTX text names.
    fn load(api: &Api, text: &str) -> Result<Self, Refusal> {
        let head = Head::of(text).ok_or_else(|| Refusal::unreadable(text))?;
        let c_text = CString::new(text).map_err(|_zero| Refusal::unreadable(text))?;
        let name = CString::new(head.entry).map_err(|_zero| Refusal::unreadable(text))?;
        let handle = api.function(&c_text, &name)?;
        Ok(Self { handle, threads: head.threads, shared: head.shared })
    }
}

/// The first line of a PTX text: `// entry NAME shared BYTES threads NUMBER`.
#[derive(Debug, PartialEq, Eq)]
struct Head<'t> {
    entry: &'t str,
    shared: u32,
    threads: u32,
}

impl<'t> Head<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let mut words = text.lines().next()?.strip_prefix("// entry ")?.split(' ');
        let entry = words.next()?;
        let mut number = |name| (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten();
        Some(Self { entry, shared: number("shared")?, threads: number("threads")? })
    }
}

#[cfg(test)]
mod tests;
