//! The kernels of one device, loaded and launched.
#![expect(unsafe_code, reason = "addresses on a device")]

use std::ffi::{CString, c_void};

use crate::cache::Table;
use crate::driver::{Api, Handle, Refusal};
use crate::table::{ROW_WORDS, Row};

/// The compute capability the kernels were compiled for: major, minor.
const LEAST_CAPABILITY: [i32; 2] = [8, 0];

/// What a launch passes beyond what the kernels' sources name: two addresses for memory of Triton's own, which they do not use.
const UNUSED: u64 = 0;

/// Of one launch.
const MOST_BLOCKS: u64 = i32::MAX as u64;
const MOST_ARGUMENTS: usize = 12;

/// Why the kernels are not there, or were not launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct LaunchError(#[from] Cause);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Driver(#[from] Refusal),
    #[error("the kernels need compute capability 8.0, this device has {0}.{1}")]
    TooOld(i32, i32),
    #[error("{0} blocks are more than a launch takes")]
    TooLarge(u64),
}

impl From<Refusal> for LaunchError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.into())
    }
}

/// What every value is meant to be multiplied with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// A number that is known.
    Number(f64),
    /// A float32 at an address on the device.
    Float32At(u64),
    /// A float64 at an address on the device.
    Float64At(u64),
}

impl Factor {
    /// As the kernels take it: an address, what is there, a number.
    const fn words(self) -> [u64; 3] {
        match self {
            Self::Number(number) => [0, 0, number.to_bits()],
            Self::Float32At(address) => [address, 1, 0],
            Self::Float64At(address) => [address, 2, 0],
        }
    }
}

/// The memory that the statistics of a table's tensors are taken in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// What [`Tables`](crate::Tables) made.
    pub table: Table,
    /// Where its words are on the device.
    pub words: u64,
    /// Where the chunks' findings may be written: [`FOUND_COLUMNS`](crate::FOUND_COLUMNS) float64 per chunk.
    pub found: u64,
    /// Where the results go: eight float64 per row.
    pub out: u64,
    /// What the first five of them are multiplied with, and eps divided by.
    pub factor: Factor,
}

/// The memory that the statistics of one tensor are taken in, without a table that would have to be brought to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct One {
    /// The tensor.
    pub row: Row,
    /// Where the row's words may be written: nine of 64 bits, which no other stream uses meanwhile.
    pub words: u64,
    /// Where 0, 1, 2 … are, as words of 64 bits, a word for each of the row's chunks.
    pub chunks: u64,
    /// As in [`Statistics`].
    pub found: u64,
    /// Eight float64.
    pub out: u64,
    /// As in [`Statistics`].
    pub factor: Factor,
}

/// The memory that fingerprints are computed in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Words {
    /// Four words per tensor: address, words, bytes of a word, place of its first chunk.
    pub rows: u64,
    /// How many tensors.
    pub tensors: u64,
    /// Two words per chunk: the row in the upper half and which of its chunks in the lower, what its sum is multiplied with.
    pub chunks: u64,
    /// How many chunks.
    pub count: u64,
    /// Where the chunks' sums may be written: a word each.
    pub sums: u64,
    /// Where the fingerprints go: a word each.
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
    /// Those of a device, by torch's number of it. The driver compiles them at the first load on a machine, which takes
    /// it a second or two, and keeps the result on disk.
    ///
    /// # Errors
    /// There is no driver, it refuses the kernels, or the device is older than they are.
    pub fn load(device: u32) -> Result<Self, LaunchError> {
        Self::with(Api::load()?, device)
    }

    /// As [`load`](Self::load), through these functions.
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

    /// Launches what measures a table's tensors, on a stream by its address; gives the number of launches: at most three.
    /// Nothing waits for them. Cost: some microseconds each.
    ///
    /// # Errors
    /// The driver refuses; what was launched before that writes into `found` alone.
    ///
    /// # Safety
    /// The addresses are those of memory on the device that is as large as said, and of tensors whose elements are there;
    /// all of it stays until the stream has done the work, and no other stream uses `found` meanwhile.
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

    /// Launches what measures one tensor, as [`measure`](Self::measure): three launches, and nothing is sent to the device.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn measure_one(&self, of: &One, stream: u64) -> Result<u32, LaunchError> {
        let [factor, code, number] = of.factor.words();
        let total = of.row.chunks();
        let partial = if of.row.has_two() { self.partial_pairs } else { self.partial };
        // `put(table, …)`
        let mut put = [UNUSED; MOST_ARGUMENTS];
        put[0] = of.words;
        put[1..=ROW_WORDS].copy_from_slice(&of.row.words(0).map(i64::cast_unsigned));
        // As in `measure`.
        let mut part = [of.words, of.chunks, of.found, 0, total, factor, code, number, UNUSED, UNUSED];
        let mut join = [of.words, of.found, total, of.out, factor, code, number, UNUSED, UNUSED];
        self.launch_all(
            stream,
            [(self.put, 1, &mut put[..]), (partial, total, &mut part[..]), (self.join, 1, &mut join[..])],
        )
    }

    /// Launches what computes fingerprints, as [`measure`](Self::measure).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn fingerprint(&self, of: &Words, stream: u64) -> Result<u32, LaunchError> {
        // `words(table, chunks, sums)`
        let mut words = [of.rows, of.chunks, of.sums, UNUSED, UNUSED];
        // `join_words(table, sums, out)`
        let mut join = [of.rows, of.sums, of.out, UNUSED, UNUSED];
        self.launch_all(stream, [(self.words, of.count, &mut words[..]), (self.join_words, of.tensors, &mut join[..])])
    }

    /// Launches what copies the first tensor of each row of a table into the second, as [`measure`](Self::measure): once,
    /// however many there are. `words` is where the table's words are on the device.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there; every row has two tensors of one dtype of up to 8 bytes, and nobody else uses the second ones meanwhile.
    pub unsafe fn copy(&self, table: Table, words: u64, stream: u64) -> Result<u32, LaunchError> {
        // `copies(table, chunks)`
        let mut copies = [words, words + table.bytes_before_pairs(), UNUSED, UNUSED];
        self.launch_all(stream, [(self.copies, table.pair_chunks, &mut copies[..])])
    }

    /// One after the other; what has no blocks is left out.
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
                    // Narrower ones are read from the lower bytes.
                    let mut arguments = [std::ptr::null_mut::<c_void>(); MOST_ARGUMENTS];
                    for (argument, word) in arguments.iter_mut().zip(&mut *words) {
                        *argument = (&raw mut *word).cast();
                    }
                    let size = [function.threads, function.shared];
                    // SAFETY: the callers name the parameters in their order, and promise what is at the addresses.
                    unsafe { self.api.launch(function.handle, count as u32, size, stream as Handle, &mut arguments) }?;
                    made += 1;
                }
            }
            Ok(made)
        })?)
    }
}

impl Function {
    /// The function of a PTX text. Its first line says which, and how it is launched.
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
